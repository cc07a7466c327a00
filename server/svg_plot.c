#include "svg_plot.h"

#include "output.h"
#include "utf8.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Pixels. A panel: title and unit above, tick labels left and below, then the legend. */
enum {
    MARGIN = 16,
    HEADER = 56,
    PANEL_WIDTH = 304,
    PLOT_LEFT = 52,
    PLOT_RIGHT = PANEL_WIDTH - 20,
    PLOT_INSET = 18, /* room for the first point's value beside the tick labels */
    PLOT_TOP = 46,
    PLOT_BOTTOM = 226,
    PANEL_HEIGHT = 264,
    LEGEND_ROW = 16,
    DIGIT_WIDTH = 7,
    MAX_X_TICKS = 64,
};

struct axis {
    double lo, hi;     /* values */
    double from, to;   /* their places */
    double step, last; /* ticks at lo, lo + step, … last */
};

/* Plain rules, no variables: viewers that are no browsers know only these. A series draws in
 * its group's colour. */
static const char style[] =
    "<style>\n"
    "svg{font:12px system-ui,sans-serif}.bg{fill:#fff}text{fill:#1f2328}.dim{fill:#59636e}\n"
    ".h{font-size:15px;font-weight:600}.t{font-weight:600}.e{text-anchor:end}"
    ".m{text-anchor:middle}.v{font-size:11px;stroke:#fff;stroke-width:3;paint-order:stroke}\n"
    ".g{stroke:#e4e7eb}.a{stroke:#59636e}"
    ".l{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}"
    ".p{fill:currentColor}\n"
    ".c0{color:#1f6fd1}.c1{color:#c2410c}.c2{color:#15803d}.c3{color:#8b3fb8}"
    ".c4{color:#a16207}.c5{color:#0e7490}.c6{color:#be185d}.c7{color:#57534e}\n"
    "@media(prefers-color-scheme:dark){\n"
    ".bg{fill:#0d1117}text{fill:#e6edf3}.dim{fill:#9198a1}.g{stroke:#2b313a}.a{stroke:#9198a1}"
    ".v{stroke:#0d1117}\n"
    ".c0{color:#6cb0ff}.c1{color:#ff9a62}.c2{color:#5fd08a}.c3{color:#d09bf5}"
    ".c4{color:#e3b341}.c5{color:#56c8dc}.c6{color:#ff8bb8}.c7{color:#c4bdb5}}\n"
    "</style>\n";

/* --- text --- */

/* Whether XML 1.0 may hold the character. */
static bool xml_char(uint32_t c)
{
    return c == '\t' || c == '\n' || c == '\r' || (c >= 0x20 && c != 0xFFFE && c != 0xFFFF);
}

static void put_char(struct buf *out, const char *s, size_t n)
{
    size_t at = 0;
    if (n == 0 || !xml_char(utf8_decode(s, &at)))
        buf_add_str(out, "\xEF\xBF\xBD");
    else if (*s == '&')
        buf_add_str(out, "&amp;");
    else if (*s == '<')
        buf_add_str(out, "&lt;");
    else if (*s == '>')
        buf_add_str(out, "&gt;");
    else
        buf_add(out, s, n);
}

/* At most `most` characters. */
void svg_text(const char *s, int most, struct buf *out)
{
    const size_t n = strlen(s);
    int count = 0;
    for (size_t i = 0; i < n; count++) {
        const int len = utf8_char(s + i, n - i);
        if (count + 1 == most && i + (size_t)(len ? len : 1) < n) {
            buf_add_str(out, "…");
            return;
        }
        put_char(out, s + i, (size_t)len);
        i += (size_t)(len ? len : 1);
    }
}

static void put_label(struct buf *out, double x, double y, const char *class, const char *s,
                      int most)
{
    buf_addf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
    svg_text(s, most, out);
    buf_add_str(out, "</text>\n");
}

/* A value so that `unit`, a difference that matters, can be seen. */
static void number_text(double v, double unit, char *out, size_t cap)
{
    if (fabs(v) >= 1e9 || (v != 0 && unit < 1e-4))
        snprintf(out, cap, "%.4g", v);
    else if (unit < 1)
        snprintf(out, cap, "%.*f", (int)ceil(-log10(unit) - 1e-9), v);
    else
        output_number(v, out, cap);
}

/* --- axes --- */

static bool drawable(struct plot_point p)
{
    return isfinite(p.x) && isfinite(p.y) && fabs(p.x) <= 1e15 && fabs(p.y) <= 1e15;
}

/* The smallest of 1, 2, 5, 10, … × 10^k that cuts the range into at most `most` parts. */
static double nice_step(double range, int most)
{
    const double least = range / most, decade = pow(10, floor(log10(least)));
    static const double factors[] = {1, 2, 5};
    for (int i = 0; i < 3; i++)
        if (factors[i] * decade >= least * (1 - 1e-9))
            return factors[i] * decade;
    return 10 * decade;
}

static double *coordinate(struct plot_point *p, bool y)
{
    return y ? &p->y : &p->x;
}

/* From 0, or the least value, to the greatest. An axis of one value is still an axis. */
static struct axis find_range(const struct plot_panel *p, bool y)
{
    struct axis a = {0};
    for (int s = 0; s < p->n_series; s++)
        for (int i = 0; i < p->series[s].n; i++) {
            struct plot_point point = p->series[s].points[i];
            if (!drawable(point))
                continue;
            a.lo = fmin(a.lo, *coordinate(&point, y));
            a.hi = fmax(a.hi, *coordinate(&point, y));
        }
    if (!(a.hi - a.lo > 1e-12))
        a.hi = a.lo + 1;
    return a;
}

static struct axis x_axis(const struct plot_panel *p)
{
    struct axis a = find_range(p, false);
    a.from = PLOT_LEFT + PLOT_INSET;
    a.to = PLOT_RIGHT;
    return a;
}

static struct axis y_axis(const struct plot_panel *p)
{
    struct axis a = find_range(p, true);
    a.step = nice_step(a.hi - a.lo, 5);
    a.lo = floor(a.lo / a.step + 1e-9) * a.step;
    a.hi = ceil(a.hi / a.step - 1e-9) * a.step;
    a.from = PLOT_BOTTOM;
    a.to = PLOT_TOP;
    return a;
}

static double place(const struct axis *a, double v)
{
    return a->from + (v - a->lo) / (a->hi - a->lo) * (a->to - a->from);
}

static void draw_y_axis(const struct axis *y, const char *unit, struct buf *out)
{
    const int n = (int)round((y->hi - y->lo) / y->step);
    char text[40];
    for (int i = 0; i <= n; i++) {
        const double v = y->lo + i * y->step, at = place(y, v);
        buf_addf(out, "<path class=\"g\" d=\"M%d %.1fH%d\"/>", PLOT_LEFT, at, PLOT_RIGHT);
        number_text(v, y->step, text, sizeof text);
        put_label(out, PLOT_LEFT - 8, at + 4, "e dim", text, 12);
    }
    put_label(out, 0, PLOT_TOP - 16, "dim", unit, 40);
}

/* Adds v to the ascending values v[n], unless it is there or they are full. */
static int insert_value(double *values, int n, double v)
{
    int at = n;
    while (at > 0 && values[at - 1] >= v)
        at--;
    if ((at < n && values[at] == v) || n == MAX_X_TICKS)
        return n;
    memmove(values + at + 1, values + at, (size_t)(n - at) * sizeof *values);
    values[at] = v;
    return n + 1;
}

/* Ticks stand at the values that were measured; where two would touch, the greater one stays. */
static void draw_x_axis(const struct plot_panel *p, const struct axis *x, struct buf *out)
{
    double values[MAX_X_TICKS], free_to = INFINITY;
    int n = 0;
    for (int s = 0; s < p->n_series; s++)
        for (int i = 0; i < p->series[s].n; i++)
            if (drawable(p->series[s].points[i]))
                n = insert_value(values, n, p->series[s].points[i].x);
    buf_addf(out, "<path class=\"a\" d=\"M%d %dH%d\"/>\n", PLOT_LEFT, PLOT_BOTTOM, PLOT_RIGHT);
    for (int i = n - 1; i >= 0; i--) {
        char text[40];
        number_text(values[i], fmod(values[i], 1) == 0 ? 1 : (x->hi - x->lo) / 100, text,
                    sizeof text);
        const double at = place(x, values[i]), half = (double)strlen(text) * DIGIT_WIDTH / 2;
        if (at + half > free_to)
            continue;
        free_to = at - half - DIGIT_WIDTH / 2.0;
        buf_addf(out, "<path class=\"a\" d=\"M%.1f %dv4\"/>", at, PLOT_BOTTOM);
        put_label(out, at, PLOT_BOTTOM + 17, "m dim", text, 12);
    }
    put_label(out, (PLOT_LEFT + PLOT_RIGHT) / 2.0, PLOT_BOTTOM + 34, "m dim", p->x_unit, 40);
}

/* --- series --- */

static void draw_line(const struct plot_series *s, const struct axis *x, const struct axis *y,
                      struct buf *out)
{
    bool any = false, joined = false;
    for (int i = 0; i < s->n; i++) {
        const struct plot_point p = s->points[i];
        if (drawable(p)) {
            buf_addf(out, "%s%c%.2f %.2f", any ? "" : "<path class=\"l\" d=\"", joined ? 'L' : 'M',
                     place(x, p.x), place(y, p.y));
            any = true;
        }
        joined = drawable(p);
    }
    if (any)
        buf_add_str(out, "\"/>\n");
}

static void draw_points(const struct plot_series *s, const struct axis *x, const struct axis *y,
                        struct buf *out)
{
    for (int i = 0; i < s->n; i++)
        if (drawable(s->points[i]))
            buf_addf(out, "<circle class=\"p\" cx=\"%.2f\" cy=\"%.2f\" r=\"3.5\"/>\n",
                     place(x, s->points[i].x), place(y, s->points[i].y));
}

/* Writes the values at the points, from the last one on, where they find room. */
static void draw_values(const struct plot_series *s, const struct axis *x, const struct axis *y,
                        struct buf *out)
{
    double free_to = INFINITY;
    for (int i = s->n - 1; i >= 0; i--) {
        char text[40];
        if (!drawable(s->points[i]))
            continue;
        number_text(s->points[i].y, (y->hi - y->lo) >= 100 ? 1 : (y->hi - y->lo) / 100, text,
                    sizeof text);
        const double at = place(x, s->points[i].x), half = (double)strlen(text) * DIGIT_WIDTH / 2;
        if (at + half > free_to)
            continue;
        free_to = at - half;
        put_label(out, at, place(y, s->points[i].y) - 9, "m v", text, 16);
    }
}

static void draw_legend(const struct plot_panel *p, struct buf *out)
{
    for (int s = 0; s < p->n_series; s++) {
        const int at = PANEL_HEIGHT + LEGEND_ROW * s + LEGEND_ROW / 2;
        buf_addf(out, "<g class=\"c%d\"><circle class=\"p\" cx=\"%d\" cy=\"%d\" r=\"3.5\"/>", s,
                 PLOT_LEFT + 4, at);
        put_label(out, PLOT_LEFT + 14, at + 4, "dim", p->series[s].label, 32);
        buf_add_str(out, "</g>\n");
    }
}

/* --- the figure --- */

static void draw_panel(const struct plot_panel *p, int left, int top, struct buf *out)
{
    const struct axis x = x_axis(p), y = y_axis(p);
    buf_addf(out, "<g transform=\"translate(%d,%d)\">\n", left, top);
    put_label(out, 0, 14, "t", p->title, 42);
    draw_y_axis(&y, p->y_unit, out);
    draw_x_axis(p, &x, out);
    for (int s = 0; s < p->n_series; s++) {
        buf_addf(out, "<g class=\"c%d\">\n", s);
        draw_line(&p->series[s], &x, &y, out);
        draw_points(&p->series[s], &x, &y, out);
        if (p->n_series == 1)
            draw_values(&p->series[s], &x, &y, out);
        buf_add_str(out, "</g>\n");
    }
    if (p->n_series > 1)
        draw_legend(p, out);
    buf_add_str(out, "</g>\n");
}

static int legend_rows(const struct plot_figure *f)
{
    int rows = 0;
    for (int i = 0; i < f->n_panels; i++)
        if (f->panels[i].n_series > 1 && f->panels[i].n_series > rows)
            rows = f->panels[i].n_series;
    return rows;
}

void svg_plot_write(const struct plot_figure *f, struct buf *out)
{
    const int columns = f->n_panels < 2 ? 1 : f->n_panels < PLOT_COLUMNS ? 2 : PLOT_COLUMNS;
    const int rows = (f->n_panels + columns - 1) / columns;
    const int panel_height = PANEL_HEIGHT + legend_rows(f) * LEGEND_ROW + MARGIN;
    const int width = 2 * MARGIN + columns * PANEL_WIDTH;
    const int height = MARGIN + HEADER + rows * panel_height;
    buf_addf(out,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
             "viewBox=\"0 0 %d %d\" role=\"img\">\n<title>",
             width, height, width, height);
    svg_text(f->title, 200, out);
    buf_addf(out, "</title>\n%s<rect class=\"bg\" width=\"%d\" height=\"%d\"/>\n", style, width,
             height);
    put_label(out, MARGIN, MARGIN + 14, "h", f->title, width / 9);
    put_label(out, MARGIN, MARGIN + 34, "dim", f->note, width / 7);
    for (int i = 0; i < f->n_panels; i++)
        draw_panel(&f->panels[i], MARGIN + i % columns * PANEL_WIDTH,
                   MARGIN + HEADER + i / columns * panel_height, out);
    buf_add_str(out, "</svg>\n");
}
