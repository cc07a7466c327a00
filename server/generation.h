/* generation.h: one completions or chat request while the engine works on it.
 *
 * A generation owns an engine request a prompt, and n choices each; choice c of prompt p has
 * the index p × n + c in the reply. It lives while the engine has any of its requests, or its
 * HTTP request is open; whichever lets go last frees it. When the client leaves, or the reader
 * takes nothing for too long, what the engine still does for it is cancelled. While a stream's
 * reader is behind, nothing is made for it: its tokens stay in the engine's arrays.
 * Loop thread only. */
#ifndef TOKEND_GENERATION_H
#define TOKEND_GENERATION_H

#include "choice_out.h"
#include "http.h"
#include "list.h"
#include "prompt.h"

#include <jansson.h>

struct api;
struct generation;

/* What the text workers make of a body. */
struct gen_input { /* zeroed = empty */
    struct gen_params params;
    struct prompt_list prompts;
    bool chat;
};
void gen_input_free(struct gen_input *);

struct gen_prompt {
    struct generation *gen;
    struct request *request; /* shared with the engine until it is handed back */
    bool with_engine;
    char *text; /* for echo */
    size_t n_text;
    json_t *listed; /* its logprobs as JSON, shared by its choices while their replies are made */
    uint64_t t_first, t_last; /* uv_hrtime of its tokens */
};

struct generation {
    struct list_node node; /* in api.generations */
    struct api *api;
    struct http_request *http; /* NULL: answered, or the client left */
    struct gen_params params;
    bool chat;
    char id[48];
    int64_t created;          /* seconds since 1970 */
    uint64_t t_arrival;       /* uv_hrtime */
    int n_prompts, n_choices; /* n_choices: of all prompts */
    struct gen_prompt *prompts;
    struct choice_out *choices;
    int n_open;        /* choices that have not finished */
    int n_with_engine; /* requests that the engine has not handed back */
    int busy;          /* functions on the stack that use it */
    bool streaming;    /* the stream has begun */
    bool over;         /* the reply is complete, or given up */
    bool waiting;   /* for the stream's room or a worker; tokens stay with the engine's request */
    int next;       /* choice to go on with after that */
    uint64_t turn;  /* uv_now of the loop's turn in which .. */
    int64_t spent;  /* .. so much time went into events, estimated */
    uv_work_t work; /* a text worker writes a large reply, or the events of choice `next` */
    struct buf reply, events;
};

/* Of a choice of the reply: its prompt, and the engine's side of it. */
struct gen_prompt *generation_prompt(const struct generation *, int choice);
struct choice *generation_choice(const struct generation *, int choice);

/* Takes what *in holds, submits, and answers `http` now (an error) or later. */
void generation_start(struct api *, struct http_request *, struct gen_input *in,
                      uint64_t t_arrival);
/* A request that engine_poll gave. */
void generation_news(struct request *);
/* The engine has closed and let go of all requests, of which it publishes no news. */
void generation_engine_closed(struct generation *);
/* Ends it with an error: a reply of that status, or an event when the stream has begun. */
struct api_error;
void generation_fail(struct generation *, const struct api_error *);

#endif
