/*
 * The image: everything a seal found out, in one flat memfd, read in place by the rebuild. Tables hold fixed records that
 * name each other by index; texts and bytes lie in one heap and are named by offset. Numbers in an image are those of
 * the sealed workspace (pids, descriptors, addresses); a fork uses the same ones in namespaces of its own. An image is
 * only ever read by the same executable that wrote it.
 */
#ifndef BUNSHIN_FORK_IMAGE_H
#define BUNSHIN_FORK_IMAGE_H

#include <linux/prctl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "arch/x86_64.h"

#define IMAGE_MAGIC 0x62756e7368696e31ull
#define IMAGE_NONE (-1)

struct span { /* bytes in the heap */
    uint64_t offset, size;
};

/* ---- memory ---- */

enum op_kind {
    OP_MAP,     /* mmap; source tells what */
    OP_COPY,    /* pread from a page store into what is mapped */
    OP_PROTECT, /* mprotect */
    OP_LOCK,    /* mlock2 with flags */
    OP_ADVISE,  /* madvise, flags: the advice */
    OP_ATTACH,  /* shmat with flags; source: a segment */
    OP_MOVE,    /* mremap from address `offset` */
    OP_GROW,    /* mremap in place, from `offset` bytes to `length` */
    OP_UNMAP,   /* munmap */
    OP_GUARD,   /* madvise, MADV_GUARD_INSTALL */
    OP_SEAL,    /* mseal */
    OP_NAME,    /* PR_SET_VMA_ANON_NAME; offset: of the name, in the heap */
};
#define SOURCE_ANONYMOUS (-1)
/* A page store of this index, or SOURCE_FILE + index of a description. */
#define SOURCE_FILE 100000

struct image_op {
    uint64_t address, length, offset;
    int32_t kind, source;
    int32_t protection, flags;
};

/* ---- processes ---- */

struct image_action {
    int32_t signal, pad;
    uint64_t handler, flags, restorer, mask;
};

struct image_timer { /* a POSIX timer */
    int32_t id, clock, notify, signal;
    uint64_t value;
    int32_t thread, overrun;
    int64_t remaining[2], interval[2];
};

struct image_signal { /* one pending signal */
    int32_t tid;      /* 0: of the process */
    int32_t pad;
    uint8_t info[128];
};

/* The last two have no restart of the kernel's own: they are made again with what was left, in a register or below the stack. */
enum sleep_kind { SLEEP_NONE, SLEEP_NANOSLEEP, SLEEP_POLL, SLEEP_FUTEX, SLEEP_MILLISECONDS, SLEEP_TIMESPEC };

/* What only the thread itself can ask of itself, and set. */
struct image_settings {
    uint64_t timer_slack;
    int32_t parent_death_signal, securebits; /* keep-capabilities is one of those */
    int32_t tsc, cpuid;                      /* as prctl() and arch_prctl() have them; 1: allowed */
    int32_t speculation[3];                  /* PR_GET_SPECULATION_CTRL of each kind */
    int32_t pad;
};

struct image_thread {
    int32_t tid;
    int32_t process;
    char name[16];
    arch_registers registers;
    struct span extended; /* xstate */
    uint64_t mask;
    uint64_t tid_address;
    uint64_t robust_list, robust_length;
    uint64_t rseq;
    uint32_t rseq_size, rseq_signature;
    uint64_t stack_base, stack_size;
    int32_t stack_flags;
    int32_t sleep; /* enum sleep_kind: how the interrupted call goes on with the time it had left */
    int64_t sleep_left; /* ns */
    int32_t policy, priority, nice, io_priority;
    uint64_t affinity[16];
    struct image_settings settings;
    uint64_t dispatch[4]; /* of system calls to the thread itself: mode, selector, offset, length */
};

enum process_state { PROCESS_LIVE, PROCESS_STOPPED, PROCESS_ZOMBIE };

#define IMAGE_RLIMITS 16

struct image_process {
    int32_t pid, parent, group, session;
    int32_t state, exit_code, exit_signal;
    int32_t leader_gone; /* its main thread has ended, with exit_code; the others run on */
    int32_t lock_future; /* as mlockall() has it: what it maps is locked from the beginning. 0: no */
    int32_t stop_signal, stop_reported; /* of a stopped process: what stopped it, and whether its parent has heard */
    int32_t terminal;      /* index of its controlling pty description, or IMAGE_NONE */
    int32_t terminal_group;
    char name[16];
    uint32_t uid[4], gid[4];
    struct span groups;
    uint64_t capabilities[5]; /* inheritable, permitted, effective, bounding, ambient */
    uint32_t umask, personality;
    int32_t dumpable, subreaper, no_thp, never_written_and_executed, oom_score;
    int32_t confined; /* has our seccomp filter */
    int32_t directory; /* description index of its working directory */
    int32_t root; /* of its root directory, or IMAGE_NONE */
    int32_t executable; /* description index */
    struct prctl_mm_map layout; /* auxv points nowhere; see auxv */
    struct span auxv;
    uint64_t vdso;      /* where its data pages begin, 0 for none */
    uint64_t vdso_code; /* where its code begins */
    uint64_t hole, hole_size; /* an address range free in it, for the restorer */
    uint64_t limits[IMAGE_RLIMITS][2];
    int64_t interval_timer[3][4]; /* interval s, us, value s, us */
    int32_t first_thread, thread_count;
    int32_t first_op, op_count;
    int32_t first_action, action_count;
    int32_t first_timer, timer_count;
    int32_t first_descriptor, descriptor_count;
    int32_t first_signal, signal_count;
};

/* ---- descriptors ---- */

enum description_kind {
    KIND_FILE, /* by path: regular, directory, device, FIFO by name, /proc */
    KIND_GHOST, /* a regular file without a name */
    KIND_PIPE,
    KIND_SHARED, /* memfd, shared anonymous memory, POSIX shared memory */
    KIND_EVENTFD,
    KIND_TIMERFD,
    KIND_SIGNALFD,
    KIND_EPOLL,
    KIND_PIDFD,
    KIND_PTY_MASTER,
    KIND_PTY_SLAVE,
    KIND_SOCKET,
    KIND_MQUEUE,
    KIND_INOTIFY,
    KIND_PROC, /* a file of /proc/PID */
    KIND_PROC_DEAD, /* the same of a process that is dead */
};

struct image_description {
    int32_t kind;
    int32_t flags; /* as F_GETFL */
    int64_t position;
    struct span path;   /* NUL-terminated */
    struct span data;   /* by kind */
    int32_t object;     /* index in the table of its kind: pipes, shared, ptys, sockets */
    int32_t owner, owner_type; /* as F_SETOWN_EX, 0 for none */
    int32_t owner_signal;
    int32_t holder, holder_fd; /* pid and fd of who held it when found; an epoll is filled there */
    int32_t copy_up; /* written in the workspace and mapped shared: must be in the upper layer before it is mapped */
    int32_t same_as; /* of a ghost: the description with which it is made, where that is another */
    int32_t hung_up; /* a terminal whose master is gone */
    int32_t pad;
};

struct image_descriptor {
    int32_t fd, description, close_on_exec, pad;
};

enum lock_kind { LOCK_POSIX, LOCK_OFD, LOCK_FLOCK, LOCK_LEASE };

struct image_lock {
    int32_t process, fd, description, kind; /* process index and its fd for POSIX locks, else a description */
    int32_t exclusive, pad;
    int64_t start, length; /* 0: to the end, whatever that becomes */
};

struct image_watch { /* what an epoll watches; in its description's data */
    int32_t fd;
    uint32_t events;
    uint64_t data;
};

enum pidfd_of { PIDFD_OF_PROCESS, PIDFD_OF_MAIN_THREAD, PIDFD_OF_OTHER_THREAD }; /* the latter two are PIDFD_THREAD ones */

struct image_pidfd { /* in its description's data */
    int32_t pid; /* -1: reaped already */
    int32_t thread; /* enum pidfd_of */
};

struct image_pipe {
    uint64_t inode;
    int32_t capacity;
    int32_t named; /* a FIFO that has a name: path of its descriptions */
    int32_t packets; /* content is uint64 length, bytes; repeated */
    int32_t pad;
    struct span content;
};

enum shared_kind { SHARED_MEMFD, SHARED_ANONYMOUS, SHARED_FILE /* on a tmpfs */ };

struct image_shared {
    uint64_t size;
    int32_t seals, kind;
    struct span name; /* of a memfd; a path that a file has or had */
    int32_t first_run, run_count;
    uint32_t mode, uid, gid;
    int32_t entry; /* of a file that has names: the first */
};

struct image_entry { /* a name on a tmpfs; directories come before what is in them */
    struct span path, target, attributes;
    uint32_t mode, uid, gid;
    int32_t object; /* of a file */
    struct timespec accessed, modified;
};

struct image_mount { /* made inside; "" for the type of a bind mount */
    struct span point, source, type, options;
    uint64_t flags, file_system_flags;
    uint32_t mode, uid, gid;
    int32_t pad;
    int32_t directory, later; /* later: it shows what lies in memory, which must be there first */
};

struct image_run { /* a piece of an object's content, and where it is stored */
    uint64_t offset, length, store_offset;
    int32_t store, pad;
};

struct image_segment { /* System V shared memory */
    uint64_t size;
    int32_t id, key, name_key; /* name_key: what it was made with, where a removal took the key away */
    uint32_t mode; /* with the kernel's marks: to be removed, locked */
    uint32_t uid, gid, creator_uid, creator_gid;
    int32_t creator, last; /* pids */
    int32_t first_run, run_count;
    int32_t pad;
};

struct image_pty {
    int32_t index;
    int32_t locked, packet_mode, exclusive;
    int32_t held;             /* enum pty_held */
    int32_t hung_up;          /* its master is gone */
    int32_t slave_never_open; /* the master has not heard of a closing yet */
    int32_t master;           /* our copy, during a capture */
    uint8_t settings[64]; /* struct termios2 */
    uint16_t window[4];
    struct span to_slave, to_master; /* queued bytes */
    struct span ends; /* uint32_t[]: where in to_slave an end of input stands */
};

struct image_credentials {
    int32_t pid; /* 0: none */
    uint32_t uid, gid, pad;
    struct span groups;
};

struct image_socket {
    int32_t domain, type, protocol;
    int32_t state; /* enum socket_state in socket.c */
    int32_t backlog;
    int32_t peer;  /* description index of the other end, or IMAGE_NONE */
    int32_t listener; /* a pair's server side: description of the listener it came through */
    int32_t shut; /* bit 0: receive, bit 1: send */
    struct span name, peer_name; /* sockaddr */
    struct span options; /* array of {level, name, length, value[64]} */
    struct span queue; /* not read yet: uint64 length, bytes; repeated */
    struct span unsent; /* written, and not across yet: bytes */
    struct span more; /* of a TCP connection: struct tcp_end; of a listener: struct tcp_pending[]; of a UDP socket: its groups */
    uint32_t mode, uid, gid;
    int32_t named; /* bound to a path */
    int32_t outside; /* on the host's network: socket_outside.c */
    uint32_t inode;
    /* of unix sockets alone */
    struct image_credentials credentials; /* who its other end is said to be, or who made it listen */
    struct span place;    /* where the file of its name lies now; empty where it is gone */
    struct span pending;  /* of a listener: struct image_pending[], in order */
    uint64_t sent_memory; /* what it has sent and nobody has read, as the kernel counts it */
    int32_t error, pad;   /* an error the program has not been told yet */
};

struct image_pending { /* a connection that nobody has accepted yet */
    int32_t client, pad; /* description of the end that connected, or IMAGE_NONE: closed since */
    struct image_credentials credentials; /* of who connected */
    struct span name, queue; /* of the client, where that is closed; and what the client has sent */
};

struct image_message { /* in the queue of a unix socket; followed by the sender's address, descriptions (int32_t each), bytes; padded to 8 */
    uint64_t size;
    int32_t pid; /* who sent it, 0: it does not say */
    uint32_t uid, gid;
    uint32_t address_size, description_count;
    int32_t urgent; /* its last byte is out of band */
};

struct image_option {
    int32_t level, name, length, pad;
    uint8_t value[64];
};

/* ---- pid 1's own ---- */

struct image_session {
    int32_t kind, pid, command, terminal; /* descriptions, or IMAGE_NONE */
    int32_t running, last_status; /* call index */
    struct span cwd, exports;
};

struct image_call {
    uint64_t id;
    int32_t kind, state, pid, mark;
    int32_t stream[3], silent_stdin; /* descriptions, or IMAGE_NONE */
    int32_t exit_status, merged;
    uint64_t limit;
    struct span output[3], text, status;
    uint64_t total[3];
};

struct image_semaphores { /* a System V set */
    int32_t id, key, count;
    uint32_t mode, uid, gid, creator_uid, creator_gid;
    int32_t operated; /* it shows a time of its last operation */
    int32_t pad;
    struct span values, pids; /* uint16_t[], int32_t[] */
};

struct image_undo { /* what the end of a process adds to a semaphore */
    int32_t process, id, number, value;
};

struct image_queue { /* a System V message queue */
    int32_t id, key;
    uint32_t mode, uid, gid, creator_uid, creator_gid;
    int32_t last_sender, last_receiver, pad;
    long count;
    uint64_t limit;
    struct span messages; /* uint64_t length, long type, bytes, to a multiple of 8; repeated */
};

struct image_mqueue { /* a POSIX message queue */
    uint64_t inode;
    struct span name, messages; /* mqueue.c's */
    int64_t most, message_size;
    uint32_t mode, uid, gid;
    int32_t unlinked;
};

enum sysv_kind { SYSV_SHM, SYSV_SEM, SYSV_MSG, SYSV_KINDS };

/* ---- the whole ---- */

enum table {
    TABLE_PROCESS,
    TABLE_THREAD,
    TABLE_OP,
    TABLE_ACTION,
    TABLE_TIMER,
    TABLE_SIGNAL,
    TABLE_DESCRIPTION,
    TABLE_DESCRIPTOR,
    TABLE_PIPE,
    TABLE_SHARED,
    TABLE_PTY,
    TABLE_SOCKET,
    TABLE_LOCK,
    TABLE_ENTRY,
    TABLE_MOUNT,
    TABLE_RUN,
    TABLE_SEGMENT,
    TABLE_SEMAPHORES,
    TABLE_UNDO,
    TABLE_QUEUE,
    TABLE_MQUEUE,
    TABLE_SESSION,
    TABLE_CALL,
    TABLE_HEAP,
    TABLE_COUNT,
};

struct image_header {
    uint64_t magic, size;
    struct {
        uint64_t offset, count;
    } table[TABLE_COUNT]; /* offsets from the start; count is of records, of bytes for the heap */
    uint32_t store_count;
    int32_t last_pid;
    uint64_t next_call;
    int64_t sealed_at; /* CLOCK_MONOTONIC ns, of pid 1 */
    int64_t captured_at, captured_boottime; /* the same, once everything was looked at: the tree's clocks go on from there */
    int64_t clock_offset[2]; /* of the tree's clocks, from these two */
    uint32_t generation;
    int32_t begin_inside; /* its processes must descend from a pid 1 that began in their user namespace */
    int32_t next_id[SYSV_KINDS]; /* of System V objects; -1 where there are none */
    int32_t halted; /* it stands still, but for calls; init/halt.c */
    int32_t pad;
    struct span digest; /* what state digests stand on; digest/digest.c */
};

static inline void *image_at(const struct image_header *header, enum table table) {
    return (uint8_t *)header + header->table[table].offset;
}
#define IMAGE_PROCESS(h, i) ((struct image_process *)image_at(h, TABLE_PROCESS) + (i))
#define IMAGE_THREAD(h, i) ((struct image_thread *)image_at(h, TABLE_THREAD) + (i))
#define IMAGE_OP(h, i) ((struct image_op *)image_at(h, TABLE_OP) + (i))
#define IMAGE_DESCRIPTION(h, i) ((struct image_description *)image_at(h, TABLE_DESCRIPTION) + (i))
#define IMAGE_DESCRIPTOR(h, i) ((struct image_descriptor *)image_at(h, TABLE_DESCRIPTOR) + (i))
#define IMAGE_PIPE(h, i) ((struct image_pipe *)image_at(h, TABLE_PIPE) + (i))
#define IMAGE_SHARED(h, i) ((struct image_shared *)image_at(h, TABLE_SHARED) + (i))
#define IMAGE_PTY(h, i) ((struct image_pty *)image_at(h, TABLE_PTY) + (i))
#define IMAGE_SOCKET(h, i) ((struct image_socket *)image_at(h, TABLE_SOCKET) + (i))
#define IMAGE_LOCK(h, i) ((struct image_lock *)image_at(h, TABLE_LOCK) + (i))
#define IMAGE_MOUNT(h, i) ((struct image_mount *)image_at(h, TABLE_MOUNT) + (i))
#define IMAGE_ENTRY(h, i) ((struct image_entry *)image_at(h, TABLE_ENTRY) + (i))
#define IMAGE_RUN(h, i) ((struct image_run *)image_at(h, TABLE_RUN) + (i))
#define IMAGE_SEGMENT(h, i) ((struct image_segment *)image_at(h, TABLE_SEGMENT) + (i))
#define IMAGE_SEMAPHORES(h, i) ((struct image_semaphores *)image_at(h, TABLE_SEMAPHORES) + (i))
#define IMAGE_UNDO(h, i) ((struct image_undo *)image_at(h, TABLE_UNDO) + (i))
#define IMAGE_QUEUE(h, i) ((struct image_queue *)image_at(h, TABLE_QUEUE) + (i))
#define IMAGE_MQUEUE(h, i) ((struct image_mqueue *)image_at(h, TABLE_MQUEUE) + (i))
#define IMAGE_HEAP(h, s) ((uint8_t *)image_at(h, TABLE_HEAP) + (s).offset)

#endif
