/* packing.h: the weights of a model as they are loaded, from and into a file of packed weights.
 *
 * Weight after weight is looked for in the file; what is not there as it should be is packed by
 * the caller. If anything was not, the file is written anew in the background when all are
 * loaded: nothing waits for that, and its failure is a warning. One thread owns it. */
#ifndef TOKEND_PACKING_H
#define TOKEND_PACKING_H

#include "packed_file.h"

struct packing;

/* What is wrong with a file that is there is logged. The layout's text must outlive it. */
struct packing *packing_open(const char *path, const struct packed_key *, struct err *e);
/* Stops writing, unless that is done. What packing_find gave goes with it. NULL is fine. */
void packing_close(struct packing *);

/* The next weight's bytes, to be read only, or NULL; its data is not looked at. */
const void *packing_find(struct packing *, const struct packed_weight *, struct team *);
/* It is so, wherever it came from; its bytes stay until packing_close. */
void packing_note(struct packing *, const struct packed_weight *);
/* There are no more. */
void packing_done(struct packing *);
/* Waits until what packing_done began has ended (tests). */
void packing_wait(struct packing *);

#endif
