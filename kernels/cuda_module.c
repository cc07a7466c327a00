#include "cuda_module.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend_module.h"

enum { PATH_BYTES = 4096 };
static const char file_name[] = "tokend-cuda.so";

/* The library beside the program; false: the path is too long, or not known */
static bool beside_program(char path[PATH_BYTES])
{
    const ssize_t n = readlink("/proc/self/exe", path, PATH_BYTES - sizeof file_name);
    char *slash =
        n > 0 && n < PATH_BYTES - (ssize_t)sizeof file_name ? memrchr(path, '/', (size_t)n) : NULL;
    if (!slash)
        return false;
    memcpy(slash + 1, file_name, sizeof file_name);
    return true;
}

static bool find(char path[PATH_BYTES], struct err *e)
{
    const char *named = getenv("TOKEND_CUDA_MODULE");
    const bool is_named = named && *named;
    if (is_named)
        snprintf(path, PATH_BYTES, "%s", named);
    if (is_named ? access(path, R_OK) == 0 : beside_program(path) && access(path, R_OK) == 0)
        return true;
    if (is_named)
        return err_errno(e, "TOKEND_CUDA_MODULE: %s", named);
    snprintf(path, PATH_BYTES, "%s/%s", TOKEND_MODULE_DIR, file_name);
    return access(path, R_OK) == 0 ||
           err_set(e, ERR_NOT_FOUND,
                   "no %s beside the program or in %s: the build makes it where the CUDA toolkit "
                   "(nvcc, 12.0 or later) is installed",
                   file_name, TOKEND_MODULE_DIR);
}

static bool matches(const struct backend_module *m, struct err *e)
{
    if (m->abi == BACKEND_MODULE_ABI && m->struct_bytes == sizeof *m &&
        m->layout == backend_module_layout && strcmp(m->version, TOKEND_VERSION) == 0)
        return true;
    return err_set(e, ERR_UNSUPPORTED,
                   "it was not built with this program (%s, interface %d.%08x): build both anew",
                   TOKEND_VERSION, BACKEND_MODULE_ABI, (unsigned)backend_module_layout);
}

static const struct backend_module *load(struct err *e)
{
    char path[PATH_BYTES];
    const struct backend_module *(*of)(void) = NULL;
    if (!find(path, e))
        return NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, BACKEND_MODULE_SYMBOL) : NULL;
    if (!symbol) {
        err_set(e, ERR_UNSUPPORTED, "%s", dlerror());
        return NULL;
    }
    memcpy(&of, &symbol, sizeof of);
    if (matches(of(), e)) {
        of()->log_setup(log_least(), log_format_of_lines());
        return of();
    }
    err_prefix(e, "%s", path);
    return NULL;
}

bool cuda_module_usable(struct err *e)
{
    const struct backend_module *m = load(e);
    return m && m->usable(e);
}

struct backend *backend_cuda_open(const struct backend_config *c, struct err *e)
{
    const struct backend_module *m = load(e);
    return m ? m->open(c, e) : NULL;
}
