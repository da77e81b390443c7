/* Where a stub stops being a copy of pid 1: it lays the restorer out in the range that is free in the process to be, and jumps. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fork/blobs.h"
#include "fork/confine.h"
#include "fork/meet.h"
#include "fork/rebuild.h"

/* The registration of our own libc, which the process to be does not know of, must end before our memory does. */
static void leave_rseq(void) {
    extern const ptrdiff_t __rseq_offset;
    extern const unsigned int __rseq_size;
    if (__rseq_size)
        syscall(SYS_rseq, (uintptr_t)__builtin_thread_pointer() + (uintptr_t)__rseq_offset, 32, 1 /* unregister */, 0x53053053);
}

static struct restorer_thread describe_thread(const struct rebuild *rebuild, const struct image_process *process, int32_t index) {
    const struct image_thread *image = IMAGE_THREAD(rebuild->image, index);
    struct restorer_thread thread = {
        .tid = image->tid,
        .policy = image->policy,
        .priority = image->priority,
        .sleep = image->sleep == SLEEP_MILLISECONDS || image->sleep == SLEEP_TIMESPEC ? SLEEP_NONE : image->sleep,
        .sleep_left = image->sleep_left > rebuild->missed ? image->sleep_left - rebuild->missed : 0,
        .tid_address = image->tid_address,
        .robust_list = image->robust_list,
        .robust_length = image->robust_length,
        .rseq = image->rseq,
        .rseq_size = image->rseq_size,
        .rseq_signature = image->rseq_signature,
        .stack_base = image->stack_base,
        .stack_size = image->stack_size,
        .stack_flags = image->stack_flags,
        .nice = image->nice,
        .io_priority = image->io_priority,
        .confined = process->confined,
        .settings = image->settings,
        .capabilities = {process->capabilities[0], process->capabilities[1], process->capabilities[2]},
        .ambient = process->capabilities[4],
    };
    arch_registers registers = image->registers;
    for (int i = 0; i < 3; i++)
        thread.sleep_argument[i] = ARCH_REG_ARG(registers, i);
    memcpy(thread.affinity, image->affinity, sizeof thread.affinity);
    memcpy(thread.uid, process->uid, sizeof thread.uid);
    memcpy(thread.gid, process->gid, sizeof thread.gid);
    memcpy(thread.name, image->name, sizeof thread.name);
    return thread;
}

static uint64_t page_up(uint64_t size) { return (size + ARCH_PAGE - 1) & ~(ARCH_PAGE - 1); }

/* Lays out the hole: code, arguments, threads, groups, filter | control page | image | stacks. Then jumps. */
void enter_restorer(struct rebuild *rebuild, const struct image_process *process, int32_t index) {
    struct image_header *image = rebuild->image;
    size_t filter_size = confine_filter_length() * sizeof(struct sock_filter);
    uint64_t code = page_up(blob_restorer_size());
    uint64_t data = page_up(sizeof(struct restorer_args) + sizeof(struct restorer_thread) * (size_t)process->thread_count +
                            process->groups.size + filter_size + 256);
    uint64_t control = page_up(sizeof(struct rebuild_control));
    uint64_t stacks = (uint64_t)(process->thread_count + process->leader_gone) * RESTORER_STACK;
    uint64_t at = process->hole;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    if (code + data + control + page_up(image->size) + stacks > process->hole_size)
        meet_fail(rebuild, process->pid, STEP_MAP, ENOMEM, "no room for the restorer");
    if (mmap((void *)at, code + data, PROT_READ | PROT_WRITE | PROT_EXEC, flags, -1, 0) != (void *)at)
        meet_fail(rebuild, process->pid, STEP_MAP, errno, "room for the restorer");
    memcpy((void *)at, blob_restorer(), blob_restorer_size());
    struct restorer_args *args = (void *)(at + code);
    uint64_t threads = (at + code + sizeof *args + 15) & ~15ull;
    for (int32_t i = 0; i < process->thread_count; i++)
        ((struct restorer_thread *)threads)[i] = describe_thread(rebuild, process, process->first_thread + i);
    uint64_t groups = threads + sizeof(struct restorer_thread) * (uint64_t)process->thread_count;
    memcpy((void *)groups, IMAGE_HEAP(image, process->groups), process->groups.size);
    uint64_t filter = (groups + process->groups.size + 15) & ~15ull;
    memcpy((void *)filter, confine_filter(process->capabilities[3]), filter_size);
    at += code + data;
    /* The control page is shared memory: moved, not copied. */
    uint64_t control_at = at;
    if (mremap(rebuild->control, 0, control, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)at) != (void *)at)
        meet_fail(rebuild, process->pid, STEP_MAP, errno, "the control page");
    at += control;
    uint64_t image_at_address = at;
    if (mmap((void *)at, image->size, PROT_READ, MAP_SHARED | MAP_FIXED_NOREPLACE, rebuild->image_fd, 0) != (void *)at)
        meet_fail(rebuild, process->pid, STEP_MAP, errno, "the image");
    at += page_up(image->size);
    if (mmap((void *)at, stacks, PROT_READ | PROT_WRITE, flags, -1, 0) != (void *)at)
        meet_fail(rebuild, process->pid, STEP_MAP, errno, "stacks for the restorer");
    *args = (struct restorer_args){
        .self = process->hole,
        .self_end = at + stacks,
        .image = image_at_address,
        .control = control_at,
        .threads = threads,
        .stacks = at + RESTORER_STACK,
        .task_end = ARCH_TASK_END,
        .process = index,
        .fd_base = rebuild->base,
        .store_fd = rebuild->store_base,
        .description_fd = rebuild->description_base,
        .thread_count = process->thread_count,
        .missed = rebuild->missed,
        .fault = rebuild->fault,
        .without = rebuild->init->without,
        .filter = filter,
        .filter_length = confine_filter_length(),
        .groups = groups,
        .drop_bounding = rebuild->init->settings.capabilities & ~process->capabilities[3],
        .group_count = process->groups.size / sizeof(uint32_t),
    };
    leave_rseq();
    uint64_t stack = (at + RESTORER_STACK) & ~15ull, entry = process->hole;
    __asm__ volatile("mov %0, %%rsp\n"
                     "xor %%ebp, %%ebp\n"
                     "mov %1, %%rdi\n"
                     "call *%2\n"
                     :
                     : "r"(stack), "r"(args), "r"(entry)
                     : "memory", "rdi");
    __builtin_unreachable();
}
