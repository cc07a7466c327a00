#include "loaded_model.h"
#include "plan.h"
#include "svg_plot.h"

#include <stdio.h>

enum { WIDTH = 720, LEFT = 16, BAR_TOP = 64, BAR_HEIGHT = 36, ROW = 20, TEXT = 32 };

static const char style[] =
    "<style>\n"
    "svg{font:13px system-ui,sans-serif}.bg{fill:#fff}text{fill:#1f2328}.h{font-size:15px;"
    "font-weight:600}.dim{fill:#59636e}.o{fill:none;stroke:#59636e}.e{text-anchor:end}\n"
    ".c0{fill:#1f6fd1}.c1{fill:#c2410c}.c2{fill:#15803d}.c3{fill:#8b3fb8}.c4{fill:#a8a29e}"
    ".c5{fill:#e7e5e4}\n"
    "@media(prefers-color-scheme:dark){.bg{fill:#0d1117}text{fill:#e6edf3}.dim{fill:#9198a1}"
    ".c0{fill:#6cb0ff}.c1{fill:#ff9a62}.c2{fill:#5fd08a}.c3{fill:#d09bf5}.c4{fill:#57534e}"
    ".c5{fill:#2b313a}}\n"
    "</style>\n";

static uint64_t sum(const struct plan_part parts[PLAN_PARTS])
{
    uint64_t n = 0;
    for (int i = 0; i < PLAN_PARTS; i++)
        n += parts[i].bytes;
    return n;
}

static void put_bar(const struct plan_part parts[PLAN_PARTS], double scale, struct buf *out)
{
    double x = LEFT;
    for (int i = 0; i < PLAN_PARTS; i++) {
        const double width = (double)parts[i].bytes * scale;
        buf_addf(out,
                 "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" class=\"c%d\"><title>%s"
                 "</title></rect>\n",
                 x, BAR_TOP, width, BAR_HEIGHT, i, parts[i].name);
        x += width;
    }
}

static void put_legend(const struct plan_part parts[PLAN_PARTS], uint64_t memory, struct buf *out)
{
    char bytes[TEXT];
    for (int i = 0; i < PLAN_PARTS; i++) {
        const int y = BAR_TOP + BAR_HEIGHT + ROW * (i + 1) + 8;
        buf_addf(out, "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" class=\"c%d\"/>\n", LEFT,
                 y - 11, i);
        buf_addf(out,
                 "<text x=\"%d\" y=\"%d\">%s</text><text x=\"%d\" y=\"%d\" class=\"e\">%s</text>"
                 "<text x=\"%d\" y=\"%d\" class=\"dim e\">%.1f %%</text>\n",
                 LEFT + 20, y, parts[i].name, LEFT + 240, y, format_bytes(parts[i].bytes, bytes),
                 LEFT + 310, y, 100 * (double)parts[i].bytes / (double)memory);
    }
}

static void put_line(struct buf *out, int y, const char *class, const char *text)
{
    buf_addf(out, "<text x=\"%d\" y=\"%d\" class=\"%s\">", LEFT, y, class);
    svg_text(text, 96, out);
    buf_add_str(out, "</text>\n");
}

void plan_svg(const struct plan *p, struct buf *out)
{
    struct plan_part parts[PLAN_PARTS];
    char line[256], memory[TEXT];
    plan_parts(p, parts);
    const uint64_t all = sum(parts), total = all > p->device.memory ? all : p->device.memory;
    const double scale = (double)(WIDTH - 2 * LEFT) / (double)(total ? total : 1);
    const int height = BAR_TOP + BAR_HEIGHT + ROW * (PLAN_PARTS + 2) + 8;
    buf_addf(out,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
             "viewBox=\"0 0 %d %d\">\n%s<rect class=\"bg\" width=\"%d\" height=\"%d\"/>\n",
             WIDTH, height, WIDTH, height, style, WIDTH, height);
    snprintf(line, sizeof line, "%s, %d x %lld tokens", p->model->spec.name, p->wish.batch,
             (long long)p->wish.len);
    put_line(out, 24, "h", line);
    snprintf(line, sizeof line, "%d x %s of %s: memory of each%s", p->wish.n_devices,
             p->device.name, format_bytes(p->device.memory, memory),
             p->budget.left < 0 ? " - does not fit" : "");
    put_line(out, 46, "dim", line);
    put_bar(parts, scale, out);
    buf_addf(out, "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" class=\"o\"/>\n", LEFT,
             BAR_TOP, (double)p->device.memory * scale, BAR_HEIGHT);
    put_legend(parts, p->device.memory, out);
    if (p->budget.decode_per_second > 0) {
        snprintf(line, sizeof line, "decode: at most %.0f tokens/s with %lld tokens in the cache",
                 p->budget.decode_per_second, (long long)p->wish.depth);
        put_line(out, height - 14, "dim", line);
    }
    buf_add_str(out, "</svg>\n");
}
