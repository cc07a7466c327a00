/* completions.h: what the generating routes and their /render share. */
#ifndef TOKEND_COMPLETIONS_H
#define TOKEND_COMPLETIONS_H

#include "call.h"

/* Fills the call's input from its body: every field checked, the prompts tokenised. Pool. */
bool completions_read(struct call *, bool chat);

#endif
