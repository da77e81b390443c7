/* Segments that nobody has attached: ids, keys, modes, sizes, who made and who last touched them, content with holes. */
#include "victim.h"
#include <sys/shm.h>

#define COUNT 5

static struct shmid_ds state_of(int id) {
    struct shmid_ds state;
    must(shmctl(id, IPC_STAT, &state));
    return state;
}

int main(void) {
    static const size_t sizes[COUNT] = {1, 4096, 100000, 64ul << 30, 3 << 20};
    static const int modes[COUNT] = {0600, 0444, 0, 0660, 0606};
    int ids[COUNT], stale[3];
    for (int i = 0; i < 3; i++) { /* sequence numbers count up */
        stale[i] = (int)must(shmget(IPC_PRIVATE, 4096, 0600));
        must(shmctl(stale[i], IPC_RMID, NULL));
    }
    pid_t maker = fork();
    if (maker == 0) {
        for (int i = 0; i < COUNT; i++) {
            ids[i] = (int)must(shmget(0x76000 + i, sizes[i], IPC_CREAT | IPC_EXCL | SHM_NORESERVE | 0600));
            volatile char *memory = shmat(ids[i], NULL, 0);
            expect(memory != (void *)-1, "shmat");
            memory[0] = (char)('A' + i);
            memory[sizes[i] - 1] = (char)('A' + i);
            memory[sizes[i] / 2] = (char)('A' + i);
            must(shmdt((void *)memory));
        }
        _exit(0);
    }
    child_ends_well(maker);
    for (int i = 0; i < COUNT; i++)
        ids[i] = (int)must(shmget(0x76000 + i, 0, 0));
    must(shmctl(ids[1], SHM_LOCK, NULL));
    must(shmctl(ids[2], IPC_RMID, NULL)); /* a gap among the ids */
    for (int i = 0; i < COUNT; i++) {
        if (i == 2)
            continue;
        struct shmid_ds state = state_of(ids[i]);
        state.shm_perm.mode = (unsigned short)modes[i];
        must(shmctl(ids[i], IPC_SET, &state));
    }
    /* One is touched by the victim itself, which lives; the others by who is dead. */
    volatile char *touched = shmat(ids[4], NULL, 0);
    must(shmdt((void *)touched));
    struct shm_info info, before;
    must(shmctl(0, SHM_INFO, (void *)&before));
    ready();
    go();
    must(shmctl(0, SHM_INFO, (void *)&info));
    expect(info.used_ids == before.used_ids, "%d segments, %d before", info.used_ids, before.used_ids);
    expect(shmget(0x76002, 0, 0) == -1 && errno == ENOENT, "the removed one is back");
    int fresh = (int)must(shmget(IPC_PRIVATE, 4096, 0600));
    must(shmctl(fresh, IPC_RMID, NULL));
    int next = (int)must(shmget(IPC_PRIVATE, 4096, 0600));
    must(shmctl(next, IPC_RMID, NULL));
    for (int i = 0; i < 3; i++)
        expect(shmat(stale[i], NULL, 0) == (void *)-1 && fresh != stale[i] && next != stale[i], "id %d is given again", stale[i]);
    for (int i = 0; i < COUNT; i++) {
        if (i == 2)
            continue;
        expect(shmget(0x76000 + i, 0, 0) == ids[i], "its id is another");
        struct shmid_ds state = state_of(ids[i]);
        expect(state.shm_segsz == sizes[i] && state.shm_nattch == 0, "size %zu", state.shm_segsz);
        expect(state.shm_perm.mode == (i == 1 ? 0444u | SHM_LOCKED : (unsigned)modes[i]), "mode %o", state.shm_perm.mode);
        expect(state.shm_cpid == maker, "made by %d, not %d", state.shm_cpid, maker);
        expect(state.shm_lpid == (i == 4 ? getpid() : maker), "last touched by %d", state.shm_lpid);
        expect(state.shm_perm.uid == geteuid() && state.shm_perm.cuid == geteuid(), "owner");
        state.shm_perm.mode = 0600;
        must(shmctl(ids[i], IPC_SET, &state));
        volatile char *memory = shmat(ids[i], NULL, 0);
        expect(memory != (void *)-1, "shmat of %d", i);
        char own = (char)('A' + i);
        expect(memory[0] == own && memory[sizes[i] - 1] == own && memory[sizes[i] / 2] == own, "content of %d", i);
        expect(i < 3 || (memory[20000] == 0 && memory[sizes[i] / 2 + 10000] == 0), "holes of %d", i);
        memory[0] = (char)own_number();
        must(shmdt((void *)memory));
        must(shmctl(ids[i], IPC_RMID, NULL));
    }
    ok();
}
