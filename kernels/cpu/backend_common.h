/* backend_common.h: what the backends have in common: checks of what they are asked for, and the
 * host's memory of a step's inputs. The checks say in *e what is wrong and what would be right. */
#ifndef TOKEND_BACKEND_COMMON_H
#define TOKEND_BACKEND_COMMON_H

#include "backend.h"
#include "blocks.h"

bool backend_config_check(const struct backend_config *, struct err *e);
bool rope_config_check(const struct rope_config *, struct err *e);
/* reader_cols: of the weight that reads the activation; 0: none does */
bool activation_check(int width, int64_t reader_cols, struct err *e);

struct matrix_shape {
    int64_t rows, cols;
};
/* Shapes are those of the examples in *c; n_used for each of max_rows rows are at most most_slots.
 */
bool moe_config_check(const struct moe_config *c, struct matrix_shape gate,
                      struct matrix_shape down, int max_rows, int most_slots, struct err *e);

/* Takes what *in points to, for the sizes of the configuration, and adds its bytes to *total (may
 * be NULL). */
bool step_inputs_take(struct step_inputs *in, const struct backend_config *, struct blocks *,
                      uint64_t *total, struct err *e);

#endif
