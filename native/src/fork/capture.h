/*
 * What a seal gathers. One file a kind of state holds both its capture and its rebuild; this is what they share. A capture
 * changes nothing that the tree could see, and refuses by name what a fork could not keep.
 */
#ifndef BUNSHIN_FORK_CAPTURE_H
#define BUNSHIN_FORK_CAPTURE_H

#include <sys/stat.h>

#include "common/buffer.h"
#include "fork/blob_args.h"
#include "fork/freeze.h"
#include "fork/image.h"
#include "init/init.h"

struct store {
    int fd;
    uint64_t inode;
    bool retired; /* what is still mapped from it is stored anew, so that it can go */
    bool used;    /* something in this image names it */
    const uint8_t *view; /* all of it, mapped for comparing; NULL until then */
    uint64_t view_size;
};

struct stat;
struct runs;

struct capture {
    struct init *init;
    struct frozen *frozen;
    struct buffer table[TABLE_COUNT];
    /* page stores: those this workspace was made from, and a new one, last */
    struct store *stores;
    int store_count;
    const struct runs *guards; /* of the process at hand */
    uint64_t mqueue_device;
    struct tmpfs {
        unsigned device;
        char *root;
    } *tmpfs; /* tmpfs.c; the first two are /dev/shm and /dev */
    int tmpfs_count;
    unsigned memory_device; /* where the kernel keeps memfds, shared anonymous memory and System V segments */
    uint64_t store_end; /* of the new store */
    size_t pieces_most; /* of the process at hand: so many may a mapping become */
    uint64_t named_end; /* named.c: of the mappings side by side under one name, of the process at hand */
    bool named_small;   /* they are copied */
    struct span named;  /* the last name */
    bool flatten;       /* the process at hand stands on too many pieces: all of it is stored anew */
    uint64_t bytes_copied, bytes_shared;
    uint64_t memory_left; /* below the workspace's memory limit when the seal began */
    struct buffer bounce;
    int32_t kin, kin_end; /* kin.c: operations of the relative that the process at hand is compared with */
    struct buffer compared, common;
    /* what turns up more than once */
    struct described *described; /* descriptor.c */
    size_t described_count;
    struct shared_seen *shared; /* shared.c */
    size_t shared_count;
    struct buffer unix_peers; /* socket_unix.c */
    bool have_unix_peers;
    int unread; /* a copy of what holds something that its owner will read as soon as it may run, or -1: see capture_unread() */
    bool may_accept; /* what nobody accepts is to be looked into all the same: socket_unix_pending.c */
    bool unaccepted; /* that is what was met, and may not be yet */
    struct buffer located; /* locate.c */
    size_t not_located, without_handle;
    int32_t *located_index[2];
    size_t located_chains; /* of each */
    struct buffer report;
    bool outside; /* there are sockets on the host's network */
    int64_t sealed_at;
    bool not_dumpable; /* some process is not */
    int next_id[SYSV_KINDS]; /* sysv.c */
    struct span digest; /* digest/digest.c */
};

/* ---- tables (seal.c) ---- */
struct bunshin_error *capture_add(struct capture *capture, enum table table, const void *record, size_t size, int32_t *ret) MUST_CHECK;
struct bunshin_error *capture_heap(struct capture *capture, const void *data, size_t size, struct span *ret) MUST_CHECK;
/* Events, connections or answers that only their owner can take: the seal may let go for a moment and try again. */
void capture_unread(struct capture *capture, int fd);
struct bunshin_error *capture_text(struct capture *capture, const char *text, struct span *ret) MUST_CHECK;
#define CAPTURE_COUNT(c, t, type) ((int32_t)((c)->table[t].size / sizeof(type)))
#define CAPTURE_AT(c, t, type, i) ((type *)(void *)((c)->table[t].data) + (i))

/* ---- one process (process.c; parasite.c) ---- */
struct parasite { /* code of ours in a frozen process, while it is asked */
    struct tracee *leader;
    uint64_t vdso;
    uint64_t area, size;
    bool no_room;               /* it has locked as much memory as it may, and whatever it maps is locked */
    struct parasite_args *args; /* our copy; answers after a run */
};
struct bunshin_error *parasite_enter(struct tracee *leader, uint64_t vdso, struct parasite *ret) MUST_CHECK;
struct bunshin_error *parasite_run(struct parasite *parasite, struct tracee *thread) MUST_CHECK;
void parasite_leave(struct parasite *parasite);
uint64_t parasite_code_size(void); /* its arguments lie behind it */

struct bunshin_error *capture_process(struct capture *capture, struct frozen_process *frozen) MUST_CHECK;

/* ---- what is shared against custom (apart.c) ---- */
struct bunshin_error *apart_refuse(struct capture *capture) MUST_CHECK;

/* ---- memory (mappings.c, memory.c) ---- */
enum mapping_flag { /* of VmFlags in /proc/PID/smaps */
    MAPPING_GROWS = 1,
    MAPPING_LOCKED = 2,
    MAPPING_LOCKED_ON_FAULT = 4,
    MAPPING_NOT_FOR_CHILDREN = 8,
    MAPPING_WIPED_IN_CHILDREN = 16,
    MAPPING_NOT_DUMPED = 32,
    MAPPING_HUGE = 64,
    MAPPING_NOT_HUGE = 128,
    MAPPING_MERGEABLE = 256,
    MAPPING_MAY_WRITE = 512,
    MAPPING_HUGE_PAGES = 1024,
    MAPPING_SEALED = 2048,
};

struct mapping { /* of /proc/PID/smaps */
    uint64_t start, end, offset;
    int protection;
    bool shared;
    unsigned flags; /* enum mapping_flag */
    char kind;   /* 'a'nonymous, 'f'ile, 's'tack, 'w'iped in children, 'v'dso, 'x' other kernel page, 'p'age store */
    int store;   /* of kind 'p' */
    uint64_t inode;
    unsigned device;
    const char *path; /* "" for none */
    bool deleted;
    bool swapped; /* some of it is swapped out */
    int key;      /* protection key, 0 for none */
};
struct mappings {
    struct buffer text;
    struct mapping *list;
    size_t count;
    uint64_t vdso;      /* where the vdso's code starts */
    uint64_t vdso_base; /* where its data pages start: vvar */
};
struct bunshin_error *mappings_read(struct capture *capture, pid_t pid, struct mappings *ret) MUST_CHECK;
void mappings_deinit(struct mappings *mappings);
struct bunshin_error *capture_memory(struct capture *capture, struct frozen_process *frozen, const struct mappings *mappings,
                                     struct parasite *parasite, struct image_process *process) MUST_CHECK;
/* Reads what a process has; guards read as zeros. */
struct bunshin_error *memory_read(struct capture *capture, pid_t pid, uint64_t address, uint8_t *ret, uint64_t length) MUST_CHECK;
/* Copies a range of a process into the new store; *ret_offset says where. */
struct bunshin_error *store_copy(struct capture *capture, pid_t pid, uint64_t address, uint64_t length, uint64_t at) MUST_CHECK;
uint64_t store_reserve(struct capture *capture, uint64_t length);
struct bunshin_error *store_write(struct capture *capture, const void *data, size_t size, uint64_t at) MUST_CHECK;

/* ---- names of memory (named.c) ---- */
#define NAMED_OBJECT "[anon_shmem:"
/* A name and the bracket behind it; NULL for none. */
const char *named_text(const struct mapping *mapping);
/* Whether a private mapping that has a name is to be copied; `cursor`: of its first run, or one before. */
bool named_is_small(struct capture *capture, const struct mappings *mappings, const struct mapping *mapping,
                    const struct runs *runs, size_t cursor);
/* After the operations that map it, from this one on. */
struct bunshin_error *named_capture(struct capture *capture, const struct mapping *mapping, int32_t first_op) MUST_CHECK;

/* ---- descriptors (descriptor.c and one file a kind) ---- */
struct holder { /* who has an open description, and our own copy of it */
    struct frozen_process *process;
    int fd;      /* in the process */
    int copy;    /* in pid 1 */
    const char *link; /* what /proc/PID/fd shows */
    const char *info; /* fdinfo */
    bool in_flight; /* no process has it: it waits in the queue of a socket that `process` has as `fd` */
};
struct bunshin_error *capture_descriptors(struct capture *capture, struct frozen_process *frozen, struct image_process *process) MUST_CHECK;
/* pid 1's own copies of streams and pipes that tools hold the other end of. */
struct bunshin_error *capture_own(struct capture *capture, int fd, int32_t *ret) MUST_CHECK;
/* A descriptor on its way: `fd` is our own copy, which this takes over, and `carrier` has the socket it was found in. */
struct bunshin_error *capture_in_flight(struct capture *capture, const struct holder *carrier, int fd, int32_t *ret) MUST_CHECK;
#define MAPPED_SHARED 0x40000000 /* beside open flags: the path is mapped shared */
/* A description opened by path, for working directories, executables and file mappings. */
struct bunshin_error *capture_path(struct capture *capture, struct frozen_process *frozen, const char *link, int flags, int32_t *ret) MUST_CHECK;
struct bunshin_error *capture_refuse(const struct holder *holder, const char *format, ...) __attribute__((format(printf, 2, 3))) MUST_CHECK;

struct bunshin_error *ghost_capture(struct capture *capture, int copy, const char *path, const struct stat *info,
                                    struct image_description *ret) MUST_CHECK;
/* Of a shared mapping; IMAGE_NONE where nobody has the file open. */
struct bunshin_error *ghost_capture_mapping(struct capture *capture, struct frozen_process *frozen, const struct mapping *mapping,
                                            int32_t *ret) MUST_CHECK;
bool procfile_is(const char *link);
struct bunshin_error *procfile_capture(struct capture *capture, const struct holder *holder, const struct stat *info,
                                       struct image_description *ret) MUST_CHECK;
struct bunshin_error *namespace_capture(struct capture *capture, const struct holder *holder, const struct stat *info,
                                        struct image_description *ret) MUST_CHECK;
struct bunshin_error *file_capture(struct capture *capture, const struct holder *holder, struct image_description *ret) MUST_CHECK;
struct bunshin_error *pipe_capture(struct capture *capture, const struct holder *holder, int32_t self, struct image_description *ret) MUST_CHECK;
struct bunshin_error *anonymous_capture(struct capture *capture, const struct holder *holder, struct image_description *ret) MUST_CHECK;
struct bunshin_error *pty_capture(struct capture *capture, const struct holder *holder, struct image_description *ret) MUST_CHECK;
struct bunshin_error *socket_capture(struct capture *capture, const struct holder *holder, int32_t self, struct image_description *ret) MUST_CHECK;
/* After all descriptors are known: ends that belong together. Refuses ends whose other side is outside. */
struct bunshin_error *pty_connect(struct capture *capture) MUST_CHECK;
struct bunshin_error *socket_connect(struct capture *capture) MUST_CHECK;
/* Before that: what listeners have not accepted, and what is on its way in it. */
struct bunshin_error *socket_take_unaccepted(struct capture *capture) MUST_CHECK;
/* When a frozen tree is let go. */
void unaccepted_put_back(struct frozen *frozen, int proc);

/* After all were looked for by inode: files whose name was another. */
struct bunshin_error *file_connect(struct capture *capture) MUST_CHECK;

/* ---- inotify.c ---- */
struct bunshin_error *inotify_capture(struct capture *capture, const struct holder *holder, struct image_description *ret) MUST_CHECK;
/* The same for what watches lie on. */
struct bunshin_error *inotify_connect(struct capture *capture) MUST_CHECK;

/* ---- POSIX message queues (mqueue.c) ---- */
struct bunshin_error *mqueue_capture_all(struct capture *capture) MUST_CHECK;
/* The file system of the workspace's queues, mounted nowhere; -1 where it cannot be. */
int mqueue_directory(void);
bool mqueue_is(const struct capture *capture, const struct stat *info);
struct bunshin_error *mqueue_capture(struct capture *capture, const struct holder *holder, struct image_description *ret) MUST_CHECK;

/* ---- mounts made inside (mounts.c) ---- */
struct bunshin_error *mounts_capture(struct capture *capture) MUST_CHECK;

/* ---- files in memory (tmpfs.c) ---- */
struct bunshin_error *tmpfs_open(struct capture *capture) MUST_CHECK;
struct bunshin_error *tmpfs_add(struct capture *capture, const char *root, unsigned device) MUST_CHECK;
void tmpfs_forget(struct capture *capture);
bool tmpfs_has(const struct capture *capture, unsigned device);
struct bunshin_error *tmpfs_capture(struct capture *capture) MUST_CHECK;

/* ---- shared memory (shared.c) ---- */
bool shared_is(const struct capture *capture, const struct stat *info);
/* A file on a tmpfs under one of its names, the entry of this number. */
struct bunshin_error *shared_capture_named(struct capture *capture, int copy, const char *path, int32_t entry, int32_t *ret_object) MUST_CHECK;
struct bunshin_error *shared_capture(struct capture *capture, const struct holder *holder, const struct stat *info,
                                     struct image_description *ret) MUST_CHECK;
/* The description of the object that a mapping shows; IMAGE_NONE for private ones of what can be seen nowhere else. */
struct bunshin_error *shared_capture_mapping(struct capture *capture, struct frozen_process *frozen, const struct mapping *mapping,
                                             struct parasite *parasite, int32_t *ret) MUST_CHECK;
struct bunshin_error *shared_finish(struct capture *capture) MUST_CHECK;
void shared_forget(struct capture *capture);

/* ---- System V (sysv.c) ---- */
struct bunshin_error *sysv_capture(struct capture *capture) MUST_CHECK;
/* What the end of a process would undo. */
struct bunshin_error *sysv_capture_undo(struct capture *capture, struct frozen_process *frozen, struct parasite *parasite, int32_t process) MUST_CHECK;
bool sysv_is_segment(const struct capture *capture, const struct mapping *mapping);
struct bunshin_error *sysv_capture_mapping(struct capture *capture, struct frozen_process *frozen, const struct mappings *mappings,
                                           const struct mapping *mapping) MUST_CHECK;
/* When a frozen tree is let go: it was not we who had a segment attached last. */
void sysv_release(struct frozen *frozen, int proc);

/* ---- pid 1 (own.c) ---- */
struct bunshin_error *own_capture(struct capture *capture) MUST_CHECK;

#endif
