/*
 * libbunshin-frozen.so: preloaded into the programs of a workspace with a frozen clock or seeded randomness. It takes the place
 * of the C library's functions that read the wall clock (clock.c), draw random bytes (random.c) and open the devices for them
 * (devices.c).
 *
 * It is linked against nothing, so that it loads into programs of any C library: system calls are made directly (base.c), and
 * the functions it stands before are looked up where they are first needed. It allocates nothing, and holds no descriptor.
 */
#ifndef BUNSHIN_FROZEN_PRELOAD_H
#define BUNSHIN_FROZEN_PRELOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "frozen/frozen.h"

#define memcpy __builtin_memcpy
#define memset __builtin_memset

#define EXPORT __attribute__((visibility("default")))
/* The function of this name that would have been called without us, or NULL. */
#define REAL(name) ((__typeof__(&name))base_real(&(static_real_##name), #name))
#define DECLARE_REAL(name) static void *static_real_##name

/* ---- base.c ---- */

long base_syscall(long number, long a, long b, long c, long d, long e, long f);
#define SYS(number, a, b, c, d) base_syscall(number, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
/* A system call's answer as the C library gives it: −1 and errno. */
long base_answer(long result);
void *base_real(void **known, const char *name);
/* What was told when the program started; the flags are 0 where nothing was. */
const struct frozen *base_told(void);
/* What is told now: of the call that runs. */
bool base_ask(struct frozen *ret);
bool base_equal(const char *a, const char *b);

/* ---- random.c ---- */

/* ChaCha20: the block of this number. */
void random_block(const uint8_t key[32], uint64_t nonce, uint64_t number, uint8_t ret[64]);
/* The next bytes of this process's stream. */
void random_draw(void *ret, size_t size);
/* The session's shell begins a call. */
void random_begin_call(void);
bool random_is_seeded(void);

#endif
