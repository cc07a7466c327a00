/* svg_plot.h: line plots as one self-contained SVG file.
 *
 * A figure is a grid of panels, each with its own axes. Nothing is fetched, there is no script,
 * and colours follow the reader's light or dark scheme. Texts may be anything: they are escaped,
 * what XML cannot hold becomes U+FFFD, and what does not fit is cut.
 * Points are joined in the order given. One that is not finite, or beyond ±1e15, is left out and
 * breaks the line. Axes begin at 0 unless a value is negative. Any thread. */
#ifndef TOKEND_SVG_PLOT_H
#define TOKEND_SVG_PLOT_H

#include "buf.h"

enum { PLOT_MAX_SERIES = 8, PLOT_COLUMNS = 3 };

struct plot_point {
    double x, y;
};

struct plot_series {
    const char *label; /* shown where a panel has several */
    const struct plot_point *points;
    int n;
};

struct plot_panel {
    const char *title, *x_unit, *y_unit;
    struct plot_series series[PLOT_MAX_SERIES];
    int n_series;
};

struct plot_figure {
    const char *title, *note; /* note: one line below the title */
    const struct plot_panel *panels;
    int n_panels; /* PLOT_COLUMNS a row */
};

/* Appends the file's text; out->failed when memory ran out. */
void svg_plot_write(const struct plot_figure *, struct buf *out);
/* Appends any text as XML's, at most so many characters of it. */
void svg_text(const char *, int most, struct buf *out);

#endif
