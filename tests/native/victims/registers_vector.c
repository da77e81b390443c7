/* Sixteen vector registers at full width, where the processor has them, while a loop of nothing but instructions runs. */
#include "victim.h"

static volatile uint64_t gate;
static uint64_t in[16 * 8] __attribute__((aligned(64))), out[16 * 8] __attribute__((aligned(64)));

static void *herald(void *argument) {
    nap(0.1);
    ready();
    go();
    gate = 1;
    return argument;
}

#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define LOAD_256(n) "vmovdqu 64*" #n "(%0), %%ymm" #n "\n\t"
#define SAVE_256(n) "vmovdqu %%ymm" #n ", 64*" #n "(%1)\n\t"
#define LOAD_512(n) "vmovdqu64 64*" #n "(%0), %%zmm" #n "\n\t"
#define SAVE_512(n) "vmovdqu64 %%zmm" #n ", 64*" #n "(%1)\n\t"
#define LOAD_128(n) "movdqu 64*" #n "(%0), %%xmm" #n "\n\t"
#define SAVE_128(n) "movdqu %%xmm" #n ", 64*" #n "(%1)\n\t"
#define LOOP "1:\tpause\n\tcmpq $0, %2\n\tje 1b\n\t"
#define CLOBBERS "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

int main(void) {
    for (int i = 0; i < 16 * 8; i++)
        in[i] = pattern((uint64_t)i + 1000);
    pthread_t id;
    must(-pthread_create(&id, NULL, herald, NULL));
    int words;
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) {
        words = 8;
        __asm__ volatile(EACH(LOAD_512) LOOP EACH(SAVE_512) : : "r"(in), "r"(out), "m"(gate) : CLOBBERS);
    } else if (__builtin_cpu_supports("avx")) {
        words = 4;
        __asm__ volatile(EACH(LOAD_256) LOOP EACH(SAVE_256) : : "r"(in), "r"(out), "m"(gate) : CLOBBERS);
    } else {
        words = 2;
        __asm__ volatile(EACH(LOAD_128) LOOP EACH(SAVE_128) : : "r"(in), "r"(out), "m"(gate) : CLOBBERS);
    }
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < words; j++)
            expect(in[i * 8 + j] == out[i * 8 + j], "word %d of vector register %d of %d words", j, i, words);
    ok();
}
