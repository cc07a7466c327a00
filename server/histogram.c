#include "metrics.h"

void histogram_add(struct histogram *h, double value, uint64_t times)
{
    int i = 0;
    while (i < h->n && value > h->bounds[i])
        i++;
    h->counts[i] += times;
    h->sum += value * (double)times;
}

void histogram_format(struct buf *out, const char *name, const char *labels,
                      const struct histogram *h)
{
    uint64_t below = 0;
    for (int i = 0; i < h->n; i++) {
        below += h->counts[i];
        buf_addf(out, "%s_bucket{%s,le=\"%.9g\"} %llu\n", name, labels, h->bounds[i],
                 (unsigned long long)below);
    }
    below += h->counts[h->n];
    buf_addf(out, "%s_bucket{%s,le=\"+Inf\"} %llu\n", name, labels, (unsigned long long)below);
    buf_addf(out, "%s_sum{%s} %.9g\n", name, labels, h->sum);
    buf_addf(out, "%s_count{%s} %llu\n", name, labels, (unsigned long long)below);
}
