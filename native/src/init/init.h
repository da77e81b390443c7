/*
 * bunshin-init: pid 1 of a workspace. It sets the workspace up after a plan, starts tools and relays their output, reaps
 * orphans, seals the tree on request, and in a fork rebuilds it. Single-threaded: one epoll loop owns everything here.
 * It dies with its owner: end of the control socket, or the keeper's death, ends it, and with it every process inside.
 */
#ifndef BUNSHIN_INIT_INIT_H
#define BUNSHIN_INIT_INIT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "common/buffer.h"
#include "common/error.h"
#include "common/wire.h"
#include "fork/mountinfo.h"

#define INIT_PRIVATE "/run/bunshin" /* a tmpfs of ours inside the workspace: the sessions' FIFOs and drivers */

/* ---- settings.c: what the plan says, and doing it ---- */

#define SETTINGS_LAYERS 256

struct settings {
    struct { /* the workspace's own layers, top first: what it has written */
        int fd;
        char *mount;
    } layer[SETTINGS_LAYERS];
    int layer_count;
    struct { /* the image's layers below those, top first */
        int fd;
        char *mount;
    } base[64];
    int base_count;
    int last_pid_fd; /* where the next pid can be set, opened before /proc/sys became read-only; or -1 */
    struct timespec dev_made; /* when /dev was last changed by us */
    int kernel_fd;   /* /proc/sys/kernel from then, for what else can be set there; or -1 */
    int network_fd;  /* the same of /proc/sys/net/ipv4, where the network is its own; or -1 */
    char **environment; /* "NAME=value", NULL at the end */
    size_t environment_count;
    char *cwd;
    int upper_fd;           /* opened before the old root went away, or -1 */
    uint64_t capabilities;  /* mask for tools */
    uint64_t memory_poll;   /* bytes, 0: no polling */
    uint64_t pids_poll;
    uint64_t disk_limit;
    uint64_t file_size_limit; /* 0: none */
    uint32_t frozen;          /* what is frozen, of FROZEN_… */
    struct timespec frozen_at; /* where the clock stands */
    uint64_t seed;
    bool network_host;
    bool layers_as_one_string; /* enum without, WITHOUT_OVERLAY_ONE_BY_ONE */
    uint32_t generation;    /* forks since the fresh workspace */
};

/* Whether the workspace itself has written at a path, which holds no links: it lies in one of its own layers. */
bool settings_wrote(const struct settings *settings, const char *path);
/* Whether a name in /dev is there from the start. */
bool settings_makes(const char *path);
struct bunshin_error *settings_apply(const uint8_t *plan, size_t size, int without, struct settings *ret) MUST_CHECK;

/* ---- output.c: a bounded record of a stream, head and tail ---- */

struct output {
    uint8_t *head, *tail;
    size_t head_size, tail_size; /* bytes held */
    size_t tail_start;           /* the tail is a ring */
    size_t limit;                /* bytes kept at most: half head, half tail */
    uint64_t total;
};

struct bunshin_error *output_write(struct output *output, const void *data, size_t size) MUST_CHECK;
/* What is kept, with a marker where bytes were dropped; then forgets it. */
struct bunshin_error *output_take(struct output *output, struct buffer *ret) MUST_CHECK;
void output_deinit(struct output *output);

/* ---- calls and sessions ---- */

enum call_kind { CALL_EXEC, CALL_SHELL, CALL_PYTHON };
enum call_state { CALL_RUNNING, CALL_EXPIRING, CALL_DONE };
enum stream { STREAM_STDOUT, STREAM_STDERR, STREAM_STATUS, STREAM_COUNT };

struct call {
    uint64_t id;
    enum call_kind kind;
    enum call_state state;
    int reply;            /* the requester, -1 after the answer and in forks */
    int stream[STREAM_COUNT]; /* read ends, -1 when closed */
    int writer[2];        /* our own write ends of a session's FIFOs while the call runs, or -1; see session.c */
    int silent_stdin;     /* write end of an open silent pipe, or -1 */
    pid_t pid;            /* CALL_EXEC: the process */
    pid_t mark;           /* newest pid when the call began */
    int64_t started, deadline, give_up; /* CLOCK_MONOTONIC ns */
    int exit_status;      /* as from waitpid, CALL_EXEC */
    bool exited;
    bool merged;
    bool out_of_memory;
    uint64_t oom_before;
    int reason_override;  /* enum bunshin_exit_reason, -1 for none */
    struct output output, part[2];
    struct buffer status; /* what the session's driver reported */
    char *text;           /* the command, for messages; cut */
    char notice[256];
    struct call *next;
};

struct session {
    enum call_kind kind;
    pid_t pid;       /* 0: not started */
    int command;     /* write end of the pipe its driver reads lines from */
    int terminal;    /* pty master (shell only), or -1 */
    struct call *running;
    char *cwd;       /* as last reported */
    struct buffer exports;
    struct { /* for digests; see digest/shell.c */
        bool known;         /* the last report told it */
        uint8_t logical[32];
        uint8_t token[32];  /* of what cannot be compared */
        char background[24], background_before[24]; /* $! now, and at the last digest */
    } state;
    int last_status;
    bool was_lost;   /* the next call starts a fresh one */
    char lost_notice[256];
};

struct init {
    int control;
    int epoll;
    int signals;
    int proc; /* /proc of the workspace */
    int memory_fd;
    struct settings settings;
    struct mountinfo mounts; /* what the workspace began with, where tools may mount */
    struct session session[3]; /* by call_kind; CALL_EXEC unused */
    struct call *calls;
    uint64_t next_call;
    bool sealed;       /* tree is frozen by seal() */
    int64_t seal_deadline;
    void *frozen;      /* fork/freeze.c's list while sealed */
    int64_t next_poll; /* limits */
    int without;       /* enum without: abilities that are not to be used */
    int carrier;       /* what only the source's own rebuild gets (fork/socket_outside.c), or -1 */
    bool digests;      /* a digest was asked for, here or before a fork: what it needs is kept from then on */
    int64_t calls_since_digest;
    int64_t clock_offset[2]; /* ns by which CLOCK_MONOTONIC and CLOCK_BOOTTIME of the tree are ahead of ours (fork/clock.c) */
    bool halted;       /* every process stands still but what calls have started since; see halt.c */
    int fault;         /* a step of the rebuild that is made to fail, for tests; 0 for none */
};

int64_t init_now(void);
void init_reap(struct init *init);
struct bunshin_error *init_watch(struct init *init, int fd) MUST_CHECK;

/* call.c */
void call_start(struct init *init, struct wire *request);
void call_readable(struct init *init, struct call *call, enum stream stream);
void call_child_exited(struct init *init, pid_t pid, int status);
void call_check_deadlines(struct init *init, int64_t now);
int64_t call_next_deadline(const struct init *init);
void call_send_output(struct init *init, struct wire *request);
void call_finish(struct init *init, struct call *call);
void call_expire(struct init *init, struct call *call, int reason, const char *notice);
struct bunshin_error *call_drain(struct init *init, struct call *call) MUST_CHECK;
void call_drain_all(struct init *init);

/* frozen.c */
/* The plan's "frozen SECONDS NANOSECONDS SEED", each "" where it is not. */
struct bunshin_error *frozen_settings(const char *const *word, struct settings *settings) MUST_CHECK;
struct bunshin_error *frozen_prepare(struct init *init) MUST_CHECK;
struct bunshin_error *frozen_begin_call(struct init *init, enum call_kind kind, const char *text, const char *const *argv) MUST_CHECK;

/* session.c */
struct bunshin_error *session_prepare(struct init *init) MUST_CHECK;
/* The name of a session's FIFO for a stream; STREAM_COUNT gives that of its command file. */
void session_path(enum call_kind kind, enum stream stream, char *ret, size_t size);
struct bunshin_error *session_ensure(struct init *init, enum call_kind kind) MUST_CHECK;
struct bunshin_error *session_send(struct init *init, struct session *session, struct call *call, const char *text) MUST_CHECK;
/* Has an idle shell report, and waits for it; what it was asked changes nothing in it. */
struct bunshin_error *session_ask(struct init *init, struct session *session) MUST_CHECK;
void session_report(struct session *session, struct call *call);
void session_exited(struct init *init, struct session *session, int status);
void session_terminal_readable(struct session *session);
/* Ends the running call's work but not the session, as Ctrl-C would. False: the session had to be ended. */
void session_interrupt(struct init *init, struct session *session, struct call *call);

/* start.c: the one place where a process of a tool is born */
struct start {
    const char *const *argv;
    const char *const *environment; /* whole environment */
    const char *cwd;
    bool cwd_required; /* else a missing one is replaced by the workspace's, and *ret_cwd_missing says so */
    int fd[3];
    bool new_session;
};
struct bunshin_error *start_process(struct init *init, const struct start *start, pid_t *ret, bool *ret_cwd_missing) MUST_CHECK;
/* Gives up what tools must not have: capabilities, then the system calls of the filter. For the calling thread. */
int start_confine(uint64_t capabilities);

/* kill.c */
/* Kills what a call started: every process born after `mark` that hangs on `root` or on us, with all descendants. */
void kill_call_tree(struct init *init, pid_t root, pid_t mark);
pid_t kill_newest_pid(void);

/* halt.c */
void halt_answer(struct init *init, struct wire *request);
/* In a workspace that stands still, a session runs for the time of its calls only. */
void halt_wake(const struct init *init, const struct session *session);
void halt_again(const struct init *init, const struct session *session);

/* interrupt.c */
/* Makes a shell give up its current command, also one that waits for a process that was killed. */
bool interrupt_shell(struct init *init, pid_t shell, pid_t mark);

/* inspect.c */
void inspect_processes(struct init *init, struct wire *request);
void inspect_holding(struct init *init, struct wire *request);
void inspect_open(struct init *init, struct wire *request);
void inspect_limits(struct init *init, int64_t now);
/* A value of the workspace's memory cgroup, from a file that has one name in v2 and another in v1. `field`: the word before
 * it, or "" for a file that holds one value alone. False where there is none. */
bool inspect_cgroup(const struct init *init, const char *v2, const char *v1, const char *field, uint64_t *ret);
/* How much more memory may be used before the memory limit makes the kernel kill somebody; UINT64_MAX where nothing tells. */
uint64_t inspect_memory_left(const struct init *init);

/* Never returns. */
/* inside: its memory began in the workspace's own user namespace. */
void init_main(const struct wire *request, int memory_fd, bool inside);
void init_main_inside(int socket, int memory_fd) __attribute__((noreturn));

#endif
