/* template_tail.h: cutting a rendered chat after its last message, so that the model goes on
 * with it (continue_final_message). */
#ifndef TOKEND_TEMPLATE_TAIL_H
#define TOKEND_TEMPLATE_TAIL_H

#include "template.h"

/* Cuts *out behind the last message's text (its last text part, if content is a list) where
 * that occurs last. ERR_INVALID when there is no such text or the template did not write it. */
bool template_cut_after(struct rendered *out, const json_t *messages, struct err *e);

#endif
