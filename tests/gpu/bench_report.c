#include "bench.h"

#include <string.h>

static double percent(double x, double of)
{
    return of > 0 ? 100 * x / of : 0;
}

static void put_limits(const struct gpu_limits *l, int emulated)
{
    if (emulated)
        printf("EMULATED: none of these figures is a GPU's\n");
    printf("%s, %d.%d, %d SMs, %.0f GiB\n", l->name, l->major, l->minor, l->sms,
           l->memory_bytes / (1 << 30));
    printf(
        "memory: nominal %.0f GB/s; measured: copy %.0f GB/s (%.0f %%), read %.0f GB/s (%.0f %%)\n",
        l->nominal_bandwidth / 1e9, l->copy_bandwidth / 1e9,
        percent(l->copy_bandwidth, l->nominal_bandwidth), l->read_bandwidth / 1e9,
        percent(l->read_bandwidth, l->nominal_bandwidth));
    printf("tensor cores: nominal f16 %.0f TFLOP/s; measured: mma f16 %.0f TFLOP/s (%.0f %%), int8 "
           "%.0f "
           "TOP/s\n\n",
           l->nominal_f16 / 1e12, l->mma_f16 / 1e12, percent(l->mma_f16, l->nominal_f16),
           l->mma_s8 / 1e12);
}

void bench_begin(struct bench_report *r, const struct gpu_limits *l, FILE *json, int emulated)
{
    *r = (struct bench_report){.limits = l, .json = json};
    put_limits(l, emulated);
    printf("%-22s %-34s %10s %8s %6s %8s %6s\n", "operation", "shape", "us", "GB/s", "% bw",
           "TFLOP/s", "% mma");
    if (json)
        fprintf(
            json,
            "{\"device\": \"%s\", \"capability\": \"%d.%d\", \"sms\": %d, \"emulated\": %s,\n"
            " \"nominal_bandwidth\": %.6g, \"copy_bandwidth\": %.6g, \"read_bandwidth\": %.6g,\n"
            " \"nominal_f16\": %.6g, \"mma_f16\": %.6g, \"mma_int8\": %.6g,\n \"rows\": [",
            l->name, l->major, l->minor, l->sms, emulated ? "true" : "false", l->nominal_bandwidth,
            l->copy_bandwidth, l->read_bandwidth, l->nominal_f16, l->mma_f16, l->mma_s8);
}

void bench_add(struct bench_report *r, const struct bench_row *row)
{
    const double s = row->seconds > 1e-9 ? row->seconds : 1e-9;
    const double bandwidth = row->bytes / s, rate = row->ops / s;
    const double of_bandwidth = percent(bandwidth, r->limits->read_bandwidth);
    const double of_mma = percent(rate, row->int8 ? r->limits->mma_s8 : r->limits->mma_f16);
    printf("%-22s %-34s %10.1f %8.0f %6.1f %8.1f %6.1f\n", row->what, row->shape, s * 1e6,
           bandwidth / 1e9, of_bandwidth, rate / 1e12, of_mma);
    fflush(stdout);
    if (r->json)
        fprintf(
            r->json,
            "%s\n  {\"operation\": \"%s\", \"shape\": \"%s\", \"seconds\": %.6g, \"bytes\": %.6g, "
            "\"ops\": %.6g, \"bandwidth_percent\": %.4g, \"mma_percent\": %.4g}",
            r->n++ ? "," : "", row->what, row->shape, s, row->bytes, row->ops, of_bandwidth,
            of_mma);
}

void bench_figure(struct bench_report *r, const char *name, double value, const char *unit,
                  double limit, const char *of_what)
{
    printf("%s: %.1f %s", name, value, unit);
    if (limit > 0)
        printf(", %.0f %% of %.1f (%s)", percent(value, limit), limit, of_what);
    printf("\n");
    fflush(stdout);
    if (r->json)
        fprintf(r->json,
                "%s\n  {\"figure\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", \"limit\": %.6g}",
                r->n++ ? "," : "", name, value, unit, limit);
}

void bench_end(struct bench_report *r)
{
    if (r->json)
        fprintf(r->json, "\n]}\n");
}
