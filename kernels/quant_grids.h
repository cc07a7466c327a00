/* quant_grids.h: the codebooks of ggml's IQ1, IQ2 and IQ3 types, facts of the formats.
 *
 * A code of a file names an entry, a point of a lattice: the magnitudes of 8 (IQ3: 4) neighbouring
 * values. The points were picked by how often weights fall near them, so no rule yields them.
 * An entry holds, lowest bits first, for each value the number of its magnitude:
 *   IQ2 (2 bits): 8, 25, 43             IQ3_XXS (3 bits): 4, 12, 20, 28, 36, 44, 52, 62
 *   IQ1 (2 bits): -1, 0, 1, signed      IQ3_S (3 bits): 1, 3, 5, … 15 */
#ifndef TOKEND_QUANT_GRIDS_H
#define TOKEND_QUANT_GRIDS_H

#include <stdint.h>

extern const uint16_t quant_grid_iq1[2048];
extern const uint16_t quant_grid_iq2_xxs[256], quant_grid_iq2_xs[512], quant_grid_iq2_s[1024];
extern const uint16_t quant_grid_iq3_xxs[256], quant_grid_iq3_s[512];

#endif
