/* fiber.h: stacks to switch between. A fiber starts at its entry, which never returns. */
#ifndef TOKEND_EMU_FIBER_H
#define TOKEND_EMU_FIBER_H

#include <cstddef>

struct fiber {
    void *sp;    /* where it goes on (hand-written switches), or a ucontext_t */
    char *stack; /* NULL: the stack that main was called on */
    size_t size; /* of the stack */
    void *fake;  /* ASan's */
};

/* Takes a stack with a guard page below it, once; it is kept for the process's life. */
void fiber_stack(fiber *);
/* The next switch to it calls entry on an empty stack. */
void fiber_reset(fiber *, void (*entry)());
/* Goes on in `to`; returns when something switches back to `from`. */
void fiber_switch(fiber *from, fiber *to);
/* The first thing an entry calls */
void fiber_entered();
/* Forgets ASan's marks on a stack that was left in the middle. */
void fiber_clean(fiber *);

#endif
