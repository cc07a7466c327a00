/* messages.h: chat messages as clients send them → as templates expect them.
 *
 * Text parts are joined without a separator; content null or absent is ""; `developer` is
 * `system`; fields that are null are left out; a tool call's arguments become an object when
 * their text is one. What a text model cannot read (images, audio) and roles nobody knows
 * are a 400 that says where. Nothing is ever fetched. Any thread. */
#ifndef TOKEND_MESSAGES_H
#define TOKEND_MESSAGES_H

#include "api_error.h"

/* `messages` is the body's field (NULL: absent). NULL and *e on failure. */
json_t *messages_normalise(const json_t *messages, struct api_error *e);

#endif
