/* Segments as an X server has them: removed, attached by two processes, still to be had by id, and gone with the last. */
#include "victim.h"
#include <sys/shm.h>

#define SIZE (5u << 20)
#define WORDS (SIZE / 8)

static struct shmid_ds state_of(int id) {
    struct shmid_ds state;
    must(shmctl(id, IPC_STAT, &state));
    return state;
}

int main(void) {
    int ids[3], to_child[2], to_parent[2];
    volatile uint64_t *memory[3];
    for (int i = 0; i < 3; i++) {
        ids[i] = (int)must(shmget(i == 2 ? 0x4b4559 : IPC_PRIVATE, SIZE, IPC_CREAT | 0600));
        memory[i] = shmat(ids[i], NULL, 0);
        expect(memory[i] != (void *)-1, "shmat");
    }
    for (uint64_t i = 0; i < WORDS; i++)
        memory[0][i] = pattern(i);
    memory[1][WORDS - 1] = 99; /* the others are holes but for a page */
    memory[2][0] = 7;
    must(pipe(to_child));
    must(pipe(to_parent));
    pid_t child = fork();
    if (child == 0) {
        char byte;
        must(read(to_child[0], &byte, 1));
        for (int i = 0; i < 3; i++) {
            memory[i][1] = 1000 + memory[i][2];
            must(shmdt((void *)memory[i]));
        }
        must(write(to_parent[1], "d", 1));
        must(read(to_child[0], &byte, 1));
        _exit(0);
    }
    for (int i = 0; i < 3; i++)
        must(shmctl(ids[i], IPC_RMID, NULL));
    ready();
    go();
    for (uint64_t i = 0; i < WORDS; i++)
        expect(memory[0][i] == pattern(i), "word %lu", (unsigned long)i);
    expect(memory[1][WORDS - 1] == 99 && memory[1][5] == 0 && memory[2][0] == 7, "content");
    uint64_t own = own_number();
    for (int i = 0; i < 3; i++) {
        struct shmid_ds state = state_of(ids[i]);
        expect(state.shm_nattch == 2, "segment %d is attached %lu times", i, (unsigned long)state.shm_nattch);
        expect(state.shm_perm.mode == (0600 | SHM_DEST), "mode %o", state.shm_perm.mode);
        expect(state.shm_perm.__key == IPC_PRIVATE, "it has its key back");
        expect(state.shm_cpid == getpid(), "made by %d", state.shm_cpid);
        memory[i][2] = own + (uint64_t)i;
    }
    expect(shmget(0x4b4559, 1, 0) == -1 && errno == ENOENT, "there is one under the key");
    volatile uint64_t *again = shmat(ids[0], NULL, SHM_RDONLY);
    expect(again != (void *)-1 && again[2] == own, "a third attachment shows another");
    must(shmdt((void *)again));
    char byte;
    must(write(to_child[1], "x", 1));
    must(read(to_parent[0], &byte, 1));
    for (int i = 0; i < 3; i++) {
        expect(memory[i][1] == 1000 + own + (uint64_t)i, "what the child wrote is not seen");
        expect(state_of(ids[i]).shm_nattch == 1, "the child has not detached it");
        must(shmdt((void *)memory[i]));
        expect(shmat(ids[i], NULL, 0) == (void *)-1, "segment %d outlives its last attachment", i);
    }
    must(write(to_child[1], "x", 1));
    child_ends_well(child);
    ok();
}
