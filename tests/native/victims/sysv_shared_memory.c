/* A SysV shared memory segment, attached, by its id. */
#include "victim.h"
#include <sys/shm.h>

int main(void) {
    int id = (int)must(shmget(IPC_PRIVATE, 65536, IPC_CREAT | 0600));
    volatile char *memory = shmat(id, NULL, 0);
    expect(memory != (void *)-1, "shmat");
    memory[1000] = 's';
    ready();
    go();
    struct shmid_ds info;
    expect(memory[1000] == 's', "content");
    must(shmctl(id, IPC_STAT, &info));
    expect(info.shm_nattch == 1 && info.shm_segsz == 65536, "attached %lu times", (unsigned long)info.shm_nattch);
    must(shmctl(id, IPC_RMID, NULL));
    ok();
}
