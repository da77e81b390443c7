/* Code of ours in a frozen process, while it is asked what only it can tell. */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "fork/blobs.h"
#include "fork/capture.h"

#define ALL_SIGNALS (~0ull)

uint64_t parasite_code_size(void) { return (blob_parasite_size() + ARCH_PAGE - 1) & ~(ARCH_PAGE - 1); }

/* What it maps is locked, and it has locked what it may: as far as it could itself, it is allowed more for the moment. */
static struct bunshin_error *map_beyond_limit(struct tracee *leader, uint64_t vdso, const uint64_t arguments[6], int64_t *ret) {
    struct rlimit limit, raised;
    if (prlimit(leader->tid, RLIMIT_MEMLOCK, NULL, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
        return NULL;
    raised = (struct rlimit){limit.rlim_max, limit.rlim_max};
    if (prlimit(leader->tid, RLIMIT_MEMLOCK, &raised, NULL) != 0)
        return NULL;
    struct bunshin_error *error = tracee_syscall(leader, vdso, SYS_mmap, arguments, ret);
    if (prlimit(leader->tid, RLIMIT_MEMLOCK, &limit, NULL) != 0 && !error)
        error = bunshin_error_os("cannot set the limit of locked memory of pid %d", leader->process);
    return error;
}

struct bunshin_error *parasite_enter(struct tracee *leader, uint64_t vdso, struct parasite *ret) {
    *ret = (struct parasite){.leader = leader, .vdso = vdso};
    if (!vdso || !tracee_vdso_syscall())
        return bunshin_error_new(BUNSHIN_ERROR_UNSUPPORTED, 0, "cannot fork: pid %d has no vdso", leader->process);
    uint64_t args_size = (sizeof(struct parasite_args) + ARCH_PAGE - 1) & ~(ARCH_PAGE - 1);
    ret->size = parasite_code_size() + args_size + 4 * ARCH_PAGE;
    ret->args = calloc(1, sizeof *ret->args);
    if (!ret->args)
        return bunshin_error_no_memory();
    leader->changed = true;
    TRY(tracee_set_mask(leader, ALL_SIGNALS));
    uint64_t arguments[6] = {0, ret->size, PROT_READ | PROT_WRITE | PROT_EXEC, 0x22 /* private, anonymous */, (uint64_t)-1, 0};
    int64_t area;
    TRY(tracee_syscall(leader, vdso, SYS_mmap, arguments, &area));
    if (area == -EAGAIN)
        TRY(map_beyond_limit(leader, vdso, arguments, &area));
    ret->no_room = area == -EAGAIN;
    bool written_or_executed = area == -EACCES; /* it has renounced memory that is both: the code is then written by force */
    if (written_or_executed) {
        arguments[2] = PROT_READ | PROT_EXEC;
        TRY(tracee_syscall(leader, vdso, SYS_mmap, arguments, &area));
    }
    if (area < 0 && area > -4096)
        return bunshin_error_new(BUNSHIN_ERROR_FORK, (int)-area, "cannot enter pid %d: mmap of %llu bytes failed", leader->process,
                                 (unsigned long long)ret->size);
    ret->area = (uint64_t)area;
    if (written_or_executed) {
        uint64_t rest[6] = {ret->area + parasite_code_size(), ret->size - parasite_code_size(), PROT_READ | PROT_WRITE};
        TRY(tracee_syscall(leader, vdso, SYS_mprotect, rest, &area));
        return tracee_force(leader->tid, ret->area, blob_parasite(), blob_parasite_size());
    }
    return tracee_write(leader->tid, ret->area, blob_parasite(), blob_parasite_size());
}

struct bunshin_error *parasite_run(struct parasite *parasite, struct tracee *thread) {
    uint64_t args = parasite->area + parasite_code_size();
    size_t asked = offsetof(struct parasite_args, resident);
    bool long_answer = parasite->args->task == PARASITE_RESIDENT || parasite->args->task == PARASITE_SEMAPHORES;
    size_t answered = long_answer ? sizeof *parasite->args : asked;
    if (parasite->args->task == PARASITE_SEMAPHORES)
        asked = answered;
    thread->changed = true;
    TRY(tracee_set_mask(thread, ALL_SIGNALS));
    TRY(tracee_write(thread->tid, args, parasite->args, asked));
    TRY(tracee_run(thread, parasite->area, parasite->area + parasite->size, args));
    TRY(tracee_read(thread->tid, args, parasite->args, answered));
    if (parasite->args->failed)
        return bunshin_error_new(BUNSHIN_ERROR_FORK, parasite->args->failed, "thread %d of pid %d cannot be asked: %s", thread->tid,
                                 thread->process, strerrordesc_np(parasite->args->failed));
    return NULL;
}

void parasite_leave(struct parasite *parasite) {
    if (parasite->area && parasite->leader->state == TRACEE_STOPPED) {
        uint64_t arguments[6] = {parasite->area, parasite->size};
        int64_t result;
        bunshin_error_destroy(tracee_syscall(parasite->leader, parasite->vdso, SYS_munmap, arguments, &result));
        bunshin_error_destroy(tracee_set_mask(parasite->leader, parasite->leader->mask));
    }
    free(parasite->args);
    parasite->args = NULL;
}
