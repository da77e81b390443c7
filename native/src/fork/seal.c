/*
 * The order of a seal: freeze, capture each process, connect what belongs together, write the image. What is captured goes
 * into tables that grow; the image is their concatenation.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "fork/births.h"
#include "fork/capture.h"
#include "fork/clock.h"
#include "fork/described.h"
#include "fork/fork.h"
#include "fork/locate.h"
#include "fork/silent.h"
#include "fork/socket.h"

static const size_t record_size[TABLE_COUNT] = {
    [TABLE_PROCESS] = sizeof(struct image_process),
    [TABLE_THREAD] = sizeof(struct image_thread),
    [TABLE_OP] = sizeof(struct image_op),
    [TABLE_ACTION] = sizeof(struct image_action),
    [TABLE_TIMER] = sizeof(struct image_timer),
    [TABLE_SIGNAL] = sizeof(struct image_signal),
    [TABLE_DESCRIPTION] = sizeof(struct image_description),
    [TABLE_DESCRIPTOR] = sizeof(struct image_descriptor),
    [TABLE_PIPE] = sizeof(struct image_pipe),
    [TABLE_SHARED] = sizeof(struct image_shared),
    [TABLE_PTY] = sizeof(struct image_pty),
    [TABLE_SOCKET] = sizeof(struct image_socket),
    [TABLE_LOCK] = sizeof(struct image_lock),
    [TABLE_ENTRY] = sizeof(struct image_entry),
    [TABLE_MOUNT] = sizeof(struct image_mount),
    [TABLE_RUN] = sizeof(struct image_run),
    [TABLE_SEGMENT] = sizeof(struct image_segment),
    [TABLE_SEMAPHORES] = sizeof(struct image_semaphores),
    [TABLE_UNDO] = sizeof(struct image_undo),
    [TABLE_MQUEUE] = sizeof(struct image_mqueue),
    [TABLE_QUEUE] = sizeof(struct image_queue),
    [TABLE_SESSION] = sizeof(struct image_session),
    [TABLE_CALL] = sizeof(struct image_call),
    [TABLE_HEAP] = 1,
};

/* ---- tables ---- */

struct bunshin_error *capture_add(struct capture *capture, enum table table, const void *record, size_t size, int32_t *ret) {
    if (ret)
        *ret = (int32_t)(capture->table[table].size / record_size[table]);
    return buffer_append(&capture->table[table], record, size);
}

struct bunshin_error *capture_heap(struct capture *capture, const void *data, size_t size, struct span *ret) {
    struct buffer *heap = &capture->table[TABLE_HEAP];
    if (heap->size % 16)
        TRY(buffer_extend(heap, 16 - heap->size % 16, NULL));
    *ret = (struct span){heap->size, size};
    return buffer_append(heap, data, size);
}

struct bunshin_error *capture_text(struct capture *capture, const char *text, struct span *ret) {
    return capture_heap(capture, text, strlen(text) + 1, ret);
}

/* ---- stores ---- */

static struct bunshin_error *add_store(struct capture *capture, int fd) {
    struct stat info;
    if (fd < 0 || fstat(fd, &info) != 0)
        return bunshin_error_os("cannot make a page store");
    struct store *grown = realloc(capture->stores, sizeof *grown * (size_t)(capture->store_count + 1));
    if (!grown)
        return bunshin_error_no_memory();
    capture->stores = grown;
    capture->stores[capture->store_count++] = (struct store){.fd = fd, .inode = info.st_ino};
    return NULL;
}

/*
 * Every seal adds a store; a line of seals must not add them for ever. Beyond STORES_MOST, those between the first (the
 * large one) and the newest few are retired: what is still mapped from them is small, and goes into the new store.
 */
#define STORES_MOST 16
#define STORES_KEPT 6

static struct bunshin_error *open_stores(struct capture *capture, uint64_t merged) {
    capture->memory_left = inspect_memory_left(capture->init);
    for (int i = 0; i < fork_stores.count; i++) {
        TRY(add_store(capture, fork_stores.fd[i]));
        capture->stores[i].retired = fork_stores.count > STORES_MOST && i > 0 && i < fork_stores.count - STORES_KEPT;
        capture->stores[i].retired |= i < 64 && merged >> i & 1;
    }
    struct stat info;
    TRY(add_store(capture, memfd_create("bunshin-pages", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
    if (fstat(capture->stores[capture->store_count - 1].fd, &info) != 0)
        return bunshin_error_os("cannot look at a page store");
    capture->memory_device = major(info.st_dev) << 20 | minor(info.st_dev);
    TRY(tmpfs_open(capture));
    return mounts_capture(capture);
}

/* Stores that no operation names are left out of the image; the rest move up. */
static void drop_unused_stores(struct capture *capture) {
    int number[WIRE_FDS_MAX], kept = 0, newest = capture->store_count - 1;
    capture->stores[newest].used = true; /* shared memory and unlinked files lie there */
    for (int i = 0; i < capture->store_count; i++) {
        number[i] = kept;
        if (capture->stores[i].used)
            capture->stores[kept++] = capture->stores[i];
    }
    int32_t ops = CAPTURE_COUNT(capture, TABLE_OP, struct image_op);
    for (int32_t i = 0; i < ops; i++) {
        struct image_op *op = CAPTURE_AT(capture, TABLE_OP, struct image_op, i);
        if ((op->kind == OP_MAP || op->kind == OP_COPY) && op->source >= 0 && op->source < SOURCE_FILE)
            op->source = number[op->source];
    }
    for (int32_t i = 0; i < CAPTURE_COUNT(capture, TABLE_RUN, struct image_run); i++) {
        struct image_run *run = CAPTURE_AT(capture, TABLE_RUN, struct image_run, i);
        run->store = number[run->store];
    }
    for (int32_t i = 0; i < CAPTURE_COUNT(capture, TABLE_DESCRIPTION, struct image_description); i++)
        if (CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, i)->kind == KIND_GHOST)
            CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, i)->object = kept - 1;
    capture->store_count = kept;
}

/* ---- the image ---- */

/* Who changes its user is not dumpable from then on. */
#define CHANGES_OF_USER (1ull << CAP_SETUID | 1ull << CAP_SETGID)

static struct bunshin_error *write_image(struct capture *capture, int *ret) {
    struct image_header header = {
        .magic = IMAGE_MAGIC,
        .store_count = (uint32_t)capture->store_count,
        .last_pid = kill_newest_pid(),
        .sealed_at = capture->sealed_at,
        .captured_at = init_now(),
        .captured_boottime = clock_boottime(),
        .clock_offset = {capture->init->clock_offset[0], capture->init->clock_offset[1]},
        .next_call = capture->init->next_call,
        .generation = capture->init->settings.generation,
        .halted = capture->init->halted,
        .begin_inside = capture->not_dumpable || capture->init->settings.capabilities & CHANGES_OF_USER,
    };
    memcpy(header.next_id, capture->next_id, sizeof header.next_id);
    header.digest = capture->digest;
    uint64_t at = sizeof header;
    for (int table = 0; table < TABLE_COUNT; table++) {
        at = (at + 63) & ~63ull;
        header.table[table].offset = at;
        header.table[table].count = capture->table[table].size / record_size[table];
        at += capture->table[table].size;
    }
    header.size = at;
    int fd = memfd_create("bunshin-image", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return bunshin_error_os("cannot make an image");
    struct bunshin_error *error = NULL;
    if (ftruncate(fd, (off_t)at) != 0 || pwrite(fd, &header, sizeof header, 0) != sizeof header)
        error = bunshin_error_os("cannot write an image of %llu bytes", (unsigned long long)at);
    for (int table = 0; !error && table < TABLE_COUNT; table++) {
        const struct buffer *part = &capture->table[table];
        for (size_t done = 0; !error && done < part->size;) {
            ssize_t put = pwrite(fd, part->data + done, part->size - done, (off_t)(header.table[table].offset + done));
            if (put <= 0)
                error = bunshin_error_os("cannot write an image of %llu bytes", (unsigned long long)at);
            else
                done += (size_t)put;
        }
    }
    if (!error)
        (void)fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    if (error)
        close(fd);
    else
        *ret = fd;
    return error;
}

/* ---- the order ---- */

static double since(int64_t *mark) {
    int64_t now = init_now();
    double ms = (double)(now - *mark) / 1e6;
    *mark = now;
    return ms;
}

/* A process whose place among parents and sessions no order of births leads to. */
static struct bunshin_error *refuse_unbearable(struct capture *capture) {
    const struct birth *impossible = NULL;
    struct births births;
    TRY(births_init(&births, capture->frozen->process_count));
    for (size_t i = 0; i < capture->frozen->process_count; i++) {
        const struct process_stat *stat = &capture->frozen->processes[i].stat;
        births_add(&births, &(struct birth){.process = (int32_t)i,
                                            .pid = capture->frozen->processes[i].pid,
                                            .parent = stat->ppid,
                                            .session = stat->session,
                                            .group = stat->pgrp});
    }
    struct bunshin_error *error = births_plan(&births, &impossible);
    if (!error && impossible) {
        const struct frozen_process *process = freeze_find(capture->frozen, impossible->pid);
        error = bunshin_error_unsupported(impossible->pid, process ? process->stat.comm : "", -1,
                                          "a place in session %d under pid %d, which was never in it", impossible->session,
                                          impossible->parent);
    }
    births_deinit(&births);
    return error;
}

static struct bunshin_error *capture_all(struct capture *capture, int64_t *mark) {
    struct frozen *frozen = capture->frozen;
    TRY(sysv_capture(capture));
    TRY(mqueue_capture_all(capture));
    TRY(refuse_unbearable(capture));
    TRY(apart_refuse(capture));
    call_drain_all(capture->init); /* what tools wrote so far is pid 1's to keep, not a pipe's */
    for (int kind = CALL_SHELL; kind <= CALL_PYTHON; kind++)
        if (capture->init->session[kind].terminal >= 0)
            session_terminal_readable(&capture->init->session[kind]);
    for (size_t i = 0; i < frozen->process_count; i++)
        TRY(capture_process(capture, &frozen->processes[i]));
    TRY(own_capture(capture));
    TRY(socket_take_unaccepted(capture));
    TRY(shared_finish(capture));
    TRY(pty_connect(capture));
    TRY(socket_connect(capture));
    TRY(locate_all(capture));
    TRY(file_connect(capture));
    TRY(inotify_connect(capture));
    TRY(buffer_printf(&capture->report, "capture %.3f\n", since(mark)));
    return NULL;
}

static void capture_deinit(struct capture *capture) {
    described_close(capture);
    shared_forget(capture);
    tmpfs_forget(capture);
    for (int table = 0; table < TABLE_COUNT; table++)
        buffer_deinit(&capture->table[table]);
    buffer_deinit(&capture->bounce);
    buffer_deinit(&capture->compared);
    buffer_deinit(&capture->common);
    buffer_deinit(&capture->unix_peers);
    locate_forget(capture);
    if (capture->unread >= 0)
        close(capture->unread);
    buffer_deinit(&capture->report);
    for (int i = 0; i < capture->store_count; i++)
        if (capture->stores[i].view)
            munmap((void *)capture->stores[i].view, capture->stores[i].view_size);
    free(capture->stores);
}

static struct bunshin_error *fault(const struct wire *request, enum seal_step step) {
    if (request->argument[1] != (int64_t)step)
        return NULL;
    return bunshin_error_new(BUNSHIN_ERROR_FORK, EIO, "cannot seal: a fault was asked for at step %d", step);
}

/* ---- what must be read by its owner ---- */

void capture_unread(struct capture *capture, int fd) {
    if (capture->unread < 0)
        capture->unread = fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

#define READ_NS 200000000ll

/*
 * Some queues can neither be looked at without taking from them nor be filled again. But who watches, listens or asks, reads: let go
 * for a moment, an owner that the freeze only came before has done so. False: it does not.
 */
static bool await_reader(int fd) {
    for (int64_t end = init_now() + READ_NS; init_now() < end; usleep(500)) {
        struct pollfd state = {.fd = fd, .events = POLLIN};
        if (poll(&state, 1, 0) == 0)
            return true;
    }
    return false;
}

#define TRIES 12 /* to find a tree whose watchers have read what they were told */

static struct bunshin_error *freeze_and_capture(struct capture *capture, struct wire *request, int64_t deadline, int64_t *mark, int *ret_newest) {
    TRY(freeze(capture->init->proc, deadline, &capture->frozen));
    capture->sealed_at = init_now(); /* what sleeps have left was found out just now */
    TRY(buffer_printf(&capture->report, "freeze %.3f\nprocesses %zu\nthreads %zu\n", since(mark), capture->frozen->process_count,
                      capture->frozen->thread_count));
    TRY(silent_refuse(capture->frozen, capture->init->proc));
    TRY(fault(request, SEAL_FREEZE));
    TRY(fault(request, SEAL_STORES));
    struct bunshin_error *error = open_stores(capture, (uint64_t)request->argument[2]);
    if (capture->store_count > fork_stores.count)
        *ret_newest = capture->stores[capture->store_count - 1].fd;
    return error ? error : capture_all(capture, mark);
}

static void thaw(struct capture *capture) {
    if (capture->frozen)
        sysv_release(capture->frozen, capture->init->proc);
    pending_put_back();
    unaccepted_put_back(capture->frozen, capture->init->proc);
    freeze_release(capture->frozen);
    capture->frozen = NULL;
}

static void close_if_open(int *fd) {
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/*
 * Who asked for a seal releases it where the fork that was to follow fails. This is for an owner that is stuck: longer than a
 * rebuild may take, since two of the same tree must never run on the same layers.
 */
#define RELEASE_PATIENCE_NS 150000000000ll

#define SILENT_FREEZE_NS 3000000000ll

void fork_seal(struct init *init, struct wire *request) {
    int reply = request->fd_count ? request->fd[0] : -1;
    int64_t mark = init_now(), deadline = mark + request->argument[0];
    struct capture capture;
    int image = -1, newest = -1, carrier = -1;
    struct bunshin_error *error = NULL;
    if (silent_look(init->proc) && deadline > init_now() + SILENT_FREEZE_NS)
        deadline = init_now() + SILENT_FREEZE_NS; /* who waits for one does not stop */
    bool may_accept = false;
    for (int tries = 0;; tries++) {
        capture = (struct capture){.init = init, .unread = -1, .may_accept = may_accept};
        error = freeze_and_capture(&capture, request, deadline, &mark, &newest);
        if (!error || capture.unread < 0 || (tries >= TRIES && !capture.unaccepted))
            break;
        thaw(&capture);
        if (!await_reader(capture.unread) || tries >= TRIES) {
            if (!capture.unaccepted)
                break;
            may_accept = true; /* nobody will: the last resort */
        }
        bunshin_error_destroy(error);
        close_if_open(&newest);
        capture_deinit(&capture);
        mark = init_now();
    }
    if (!error)
        drop_unused_stores(&capture);
    if (!error && !(error = fault(request, SEAL_CAPTURE)))
        error = write_image(&capture, &image);
    if (!error)
        error = outside_load(&capture, &carrier);
    if (!error)
        error = fault(request, SEAL_IMAGE);
    if (!error)
        (void)fcntl(newest, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    if (!error)
        error = buffer_printf(&capture.report, "image %.3f\nbytes-copied %llu\nbytes-shared %llu\n", since(&mark),
                              (unsigned long long)capture.bytes_copied, (unsigned long long)capture.bytes_shared);
    if (!error) {
        struct wire answer = {.verb = WIRE_RESULT,
                              .argument = {(int64_t)capture.bytes_copied, carrier >= 0},
                              .payload = capture.report.data,
                              .payload_size = capture.report.size};
        answer.fd[answer.fd_count++] = image;
        for (int i = 0; i < capture.store_count; i++)
            answer.fd[answer.fd_count++] = capture.stores[i].fd;
        if (carrier >= 0)
            answer.fd[answer.fd_count++] = carrier;
        error = fault(request, SEAL_ANSWER);
        if (!error)
            error = wire_send(reply, &answer);
    }
    if (error) {
        thaw(&capture);
        if (error->code != BUNSHIN_ERROR_UNSUPPORTED && error != bunshin_error_no_memory())
            error->code = BUNSHIN_ERROR_FORK;
        wire_answer(reply, error);
    } else {
        init->sealed = true;
        init->frozen = capture.frozen;
        init->seal_deadline = init_now() + RELEASE_PATIENCE_NS;
    }
    close_if_open(&image);
    close_if_open(&carrier);
    close_if_open(&newest);
    capture_deinit(&capture);
}

void fork_release(struct init *init) {
    if (!init->sealed)
        return;
    sysv_release(init->frozen, init->proc);
    pending_put_back();
    unaccepted_put_back(init->frozen, init->proc);
    freeze_release(init->frozen);
    init->frozen = NULL;
    init->sealed = false;
    init_reap(init);
}
