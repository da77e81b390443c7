/*
 * What a rebuild shares. pid 1 of the new workspace makes every open file description itself, at descriptors from
 * description_base on; the processes are cloned from it, inherit them all, and put each where it belongs. So whatever was
 * shared is shared again, without passing descriptors around.
 */
#ifndef BUNSHIN_FORK_REBUILD_H
#define BUNSHIN_FORK_REBUILD_H

#include <sys/resource.h>

#include "common/procfs.h"
#include "fork/blob_args.h"
#include "fork/image.h"
#include "init/init.h"

struct tracee;

struct rebuild {
    struct init *init;
    struct image_header *image;
    int image_fd;
    int base;             /* the first descriptor number no process uses */
    int store_base;       /* page stores */
    int description_base; /* descriptions, by index */
    bool *made;           /* which descriptions are there */
    bool epolls_in_flight; /* some are filled by a process that does not have them */
    bool one_table;       /* processes are born with pid 1's descriptor table, until unix sockets are made: socket_errand.c */
    const struct births *births; /* while the tree is built (tree.c) */
    struct rebuild_control *control;
    int carrier;          /* with the source's own sockets on the host's network, or -1 */
    struct buffer *report;
    int64_t missed; /* ns since the seal, where the fork follows it so closely that its clocks should not show it */
    struct rlimit own_limits[IMAGE_RLIMITS]; /* pid 1's, which all processes begin with */
    int *terminal; /* a slave of each pty, while stubs need it */
    int fault;            /* enum restorer_step to fail, for tests */
};

static inline int rebuild_fd(const struct rebuild *rebuild, int32_t description) { return rebuild->description_base + description; }
/* Puts a descriptor where description `index` belongs, with its flags, position and owner; closes `fd`. */
struct bunshin_error *rebuild_place(struct rebuild *rebuild, int32_t index, int fd) MUST_CHECK;
/* Sets the status flags that can be set later (append, non-blocking, direct, …). */
void rebuild_set_flags(int fd, int flags);

struct bunshin_error *file_rebuild(struct rebuild *rebuild, int32_t index) MUST_CHECK;
/* What shows the file of a unix socket, which has none before there are processes. */
bool file_is_later(const struct rebuild *rebuild, int32_t index);
struct bunshin_error *file_rebuild_later(struct rebuild *rebuild) MUST_CHECK;
struct bunshin_error *ghost_rebuild_all(struct rebuild *rebuild) MUST_CHECK;
struct bunshin_error *pipe_rebuild_all(struct rebuild *rebuild) MUST_CHECK;
struct bunshin_error *anonymous_rebuild(struct rebuild *rebuild, int32_t index) MUST_CHECK;
struct bunshin_error *pty_rebuild_all(struct rebuild *rebuild) MUST_CHECK;
/* Once all processes have their own openings. */
void pty_rebuild_done(struct rebuild *rebuild);
struct bunshin_error *socket_rebuild_all(struct rebuild *rebuild) MUST_CHECK;
struct bunshin_error *mqueue_rebuild_all(struct rebuild *rebuild) MUST_CHECK;
/* Those that do not show what lies in memory, and then, once that is there, those that do. */
struct bunshin_error *mounts_rebuild(struct rebuild *rebuild, bool later) MUST_CHECK;
struct bunshin_error *mounts_finish(struct rebuild *rebuild) MUST_CHECK;
struct bunshin_error *tmpfs_rebuild(struct rebuild *rebuild) MUST_CHECK;
struct bunshin_error *tmpfs_finish(struct rebuild *rebuild) MUST_CHECK;
/* Unix sockets are made when every process has been born, since some must do it themselves. */
bool socket_is_later(const struct rebuild *rebuild, int32_t index);
struct bunshin_error *socket_rebuild_later(struct rebuild *rebuild) MUST_CHECK;
/* In a stub: makes the system calls that pid 1 wants it to make, then takes a descriptor table of its own. Returns 0 or an errno. */
int socket_run_errands(struct rebuild *rebuild, pid_t self);
struct bunshin_error *shared_rebuild_all(struct rebuild *rebuild) MUST_CHECK;
/* Seals of what is mapped for writing: once it is. */
struct bunshin_error *shared_seal(struct rebuild *rebuild) MUST_CHECK;
struct bunshin_error *inotify_rebuild(struct rebuild *rebuild, int32_t index) MUST_CHECK;
/* Last of all: from then on every opening of a file is told. */
struct bunshin_error *inotify_watch_all(struct rebuild *rebuild) MUST_CHECK;
/* Before there are processes, and after they are there. */
struct bunshin_error *sysv_rebuild(struct rebuild *rebuild) MUST_CHECK;
struct bunshin_error *sysv_finish(struct rebuild *rebuild, struct tracee *tracees) MUST_CHECK;
/* Before there are processes, and after they are there. */
struct bunshin_error *procfile_rebuild(struct rebuild *rebuild, int32_t index) MUST_CHECK;
struct bunshin_error *procfile_finish(struct rebuild *rebuild, struct tracee *tracees) MUST_CHECK;
struct bunshin_error *own_rebuild(struct rebuild *rebuild) MUST_CHECK;

/* When all processes are there. */
void told_whom(struct rebuild *rebuild);

/* In a stub, once its descriptors are in place. Return 0 or an errno. */
int anonymous_fill_epoll(struct rebuild *rebuild, const struct image_process *process);
int anonymous_open_pidfds(struct rebuild *rebuild, const struct image_process *process);
int told_ask(struct rebuild *rebuild, const struct image_process *process);
int pty_take_control(struct rebuild *rebuild, const struct image_process *process);
int pty_set_foreground(struct rebuild *rebuild, const struct image_process *process);

/* The error that fault injection asks for at a step; NULL for none. */
struct bunshin_error *rebuild_fault(const struct rebuild *rebuild, enum restorer_step step, const char *name) MUST_CHECK;

/* tree.c: clones every process, in its place; returns when all are parked. */
struct bunshin_error *tree_rebuild(struct rebuild *rebuild) MUST_CHECK;
/* enter.c: becomes the process of this index. */
_Noreturn void enter_restorer(struct rebuild *rebuild, const struct image_process *process, int32_t index);
/* Whether somebody is born under this pid already; clones with a pid that is free. */
bool tree_has(const struct rebuild *rebuild, pid_t pid);
pid_t tree_clone(pid_t pid, uint64_t flags, int exit_signal);
/* finish.c: gives every parked thread its registers and lets all go. */
struct bunshin_error *finish_rebuild(struct rebuild *rebuild) MUST_CHECK;

#endif
