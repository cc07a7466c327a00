#include "fiber.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define FIBER_ASAN 1
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

enum { STACK_BYTES = 256 << 10, GUARD_BYTES = 64 << 10 };

/* emu_fiber_jump(save, to) pushes what a call must keep, stores the stack's top in *save, and
 * pops the same of the stack `to`. */
#if defined(__x86_64__) && !defined(EMU_UCONTEXT)
enum { KEPT = 6, RETURN_AT = 6 };
asm(R"(
    .text
    .globl emu_fiber_jump
    .type emu_fiber_jump, @function
emu_fiber_jump:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size emu_fiber_jump, .-emu_fiber_jump
)");
#elif defined(__aarch64__) && !defined(EMU_UCONTEXT)
enum { KEPT = 20, RETURN_AT = 11 }; /* x19 … x28, x29, x30, d8 … d15 */
asm(R"(
    .text
    .globl emu_fiber_jump
    .type emu_fiber_jump, %function
emu_fiber_jump:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .size emu_fiber_jump, .-emu_fiber_jump
)");
#else
#include <ucontext.h>
#define FIBER_UCONTEXT 1
#endif

#ifdef FIBER_UCONTEXT
static ucontext_t *context_of(fiber *f)
{
    if (!f->sp)
        f->sp = calloc(1, sizeof(ucontext_t));
    return (ucontext_t *)f->sp;
}

void fiber_reset(fiber *f, void (*entry)())
{
    ucontext_t *c = context_of(f);
    getcontext(c);
    c->uc_stack.ss_sp = f->stack;
    c->uc_stack.ss_size = f->size;
    c->uc_link = nullptr;
    makecontext(c, entry, 0);
    fiber_clean(f);
}

static void jump(fiber *from, fiber *to)
{
    swapcontext(context_of(from), context_of(to));
}
#else
extern "C" void emu_fiber_jump(void **save, void *to);

void fiber_reset(fiber *f, void (*entry)())
{
    /* the entry sees a stack as after a call: x86-64 wants 16 bytes less 8, AArch64 16 */
    uintptr_t top = (uintptr_t)f->stack + f->size - 64;
    void **at = (void **)top - (KEPT > 6 ? KEPT : KEPT + 2);
    for (int i = 0; i < KEPT; i++)
        at[i] = nullptr;
    at[RETURN_AT] = (void *)entry;
    if (KEPT == 6)
        at[RETURN_AT + 1] = nullptr;
    f->sp = at;
    fiber_clean(f);
}

static void jump(fiber *from, fiber *to)
{
    emu_fiber_jump(&from->sp, to->sp);
}
#endif

void fiber_stack(fiber *f)
{
    char *at = (char *)mmap(nullptr, STACK_BYTES + GUARD_BYTES, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED || mprotect(at, GUARD_BYTES, PROT_NONE)) {
        perror("cuda_emu: a fiber's stack");
        abort();
    }
    f->stack = at + GUARD_BYTES;
    f->size = STACK_BYTES;
}

#ifdef FIBER_ASAN
static const void *main_stack; /* what ASan calls main's */
static size_t main_size;

void fiber_switch(fiber *from, fiber *to)
{
    bool home = !to->stack;
    __sanitizer_start_switch_fiber(&from->fake, home ? main_stack : to->stack,
                                   home ? main_size : to->size);
    jump(from, to);
    __sanitizer_finish_switch_fiber(from->fake, nullptr, nullptr);
}

void fiber_entered()
{
    const void *stack;
    size_t size;
    __sanitizer_finish_switch_fiber(nullptr, &stack, &size);
    if (!main_stack) { /* the very first fiber was entered from there */
        main_stack = stack;
        main_size = size;
    }
}

void fiber_clean(fiber *f)
{
    f->fake = nullptr;
    __asan_unpoison_memory_region(f->stack, f->size);
}
#else
void fiber_switch(fiber *from, fiber *to)
{
    jump(from, to);
}

void fiber_entered()
{
}

void fiber_clean(fiber *)
{
}
#endif
