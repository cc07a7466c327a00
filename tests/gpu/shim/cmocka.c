#include <fnmatch.h>

#include "cmocka.h"

jmp_buf shim_end;
static const char *filter = "*";

void cmocka_set_test_filter(const char *pattern)
{
    filter = pattern;
}

void shim_fail(const char *file, int line, const char *what)
{
    printf("%s:%d: %s\n", file, line, what);
    longjmp(shim_end, SHIM_FAILED);
}

static int run_one(const struct CMUnitTest *test)
{
    void *state = NULL;
    const int end = setjmp(shim_end);
    if (end == 0)
        test->run(&state);
    return end;
}

int shim_run(const struct CMUnitTest *tests, size_t n)
{
    static const char *const ends[] = {"      OK", " FAILED ", "SKIPPED "};
    int counts[3] = {0};
    for (size_t i = 0; i < n; i++) {
        if (fnmatch(filter, tests[i].name, 0) != 0)
            continue;
        printf("[ RUN      ] %s\n", tests[i].name);
        fflush(stdout);
        const int end = run_one(tests + i);
        counts[end]++;
        printf("[ %s ] %s\n", ends[end], tests[i].name);
        fflush(stdout);
    }
    printf("[  PASSED  ] %d test(s).\n[  FAILED  ] %d test(s).\n", counts[0], counts[SHIM_FAILED]);
    return counts[SHIM_FAILED];
}
