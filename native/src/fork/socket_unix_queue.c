/*
 * What waits in unix sockets: bytes or messages, with who sent them, and with descriptors. Looked at by peeking, with an
 * offset that moves along; the socket's own settings are put back. A stream shows no borders, but where descriptors or
 * another sender's credentials come with some bytes, those begin at a border that a reader can see: it is kept.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fork/socket_unix.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif
#ifndef SCM_PIDFD
#define SCM_PIDFD 4
#endif
#define DESCRIPTORS_MOST 253 /* in one message */
#define PATIENCE_MS 2000

union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int) * DESCRIPTORS_MOST) + CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int)) + 1024];
};

/* ---- capture: one look ---- */

struct look {
    int fd;
    uint8_t *room;
    size_t size;
    /* what was seen */
    ssize_t got;
    bool told; /* credentials came with it, if only those of nobody */
    struct ucred sender;
    struct sockaddr_un address;
    socklen_t address_size;
    int descriptors[DESCRIPTORS_MOST];
    size_t count;
};

static void look_close(struct look *look) {
    for (size_t i = 0; i < look->count; i++)
        close(look->descriptors[i]);
    look->count = 0;
}

/* Looks at what lies at an offset, at most `size` bytes of it. */
static struct bunshin_error *look_at(struct look *look, uint64_t offset, size_t size) {
    union control control;
    struct iovec area = {look->room, size};
    struct msghdr letter = {.msg_iov = &area,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof control,
                            .msg_name = &look->address,
                            .msg_namelen = sizeof look->address};
    int at = (int)offset;
    look->count = 0;
    look->told = false;
    look->sender = (struct ucred){0};
    if (setsockopt(look->fd, SOL_SOCKET, SO_PEEK_OFF, &at, sizeof at) != 0)
        return bunshin_error_os("cannot look into a unix socket's queue");
    look->got = recvmsg(look->fd, &letter, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC | MSG_TRUNC);
    if (look->got < 0)
        return errno == EAGAIN || errno == ENOTCONN || errno == EINVAL ? NULL : bunshin_error_os("cannot look into a unix socket's queue");
    look->address_size = letter.msg_namelen < sizeof look->address ? letter.msg_namelen : sizeof look->address;
    for (struct cmsghdr *item = CMSG_FIRSTHDR(&letter); item; item = CMSG_NXTHDR(&letter, item)) {
        if (item->cmsg_level != SOL_SOCKET)
            continue;
        if (item->cmsg_type == SCM_RIGHTS) {
            look->count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            memcpy(look->descriptors, CMSG_DATA(item), look->count * sizeof(int));
        } else if (item->cmsg_type == SCM_CREDENTIALS) {
            look->told = true;
            memcpy(&look->sender, CMSG_DATA(item), sizeof look->sender);
        } else if (item->cmsg_type == SCM_PIDFD) {
            int pidfd;
            memcpy(&pidfd, CMSG_DATA(item), sizeof pidfd);
            if (pidfd >= 0)
                close(pidfd);
        }
    }
    if (letter.msg_flags & MSG_CTRUNC) {
        look_close(look);
        return bunshin_error_new(BUNSHIN_ERROR_OS, EMFILE, "cannot take copies of the descriptors on their way in a unix socket");
    }
    return NULL;
}

/*
 * At which byte of what was just seen at `offset` the part begins that has descriptors: it is the last one. A look with room
 * for all but one byte cannot copy that part, and says how far it came; into memory that is there it would copy what fits.
 */
static struct bunshin_error *find_border(struct look *look, uint64_t offset, uint64_t *ret) {
    size_t room = (size_t)look->got - 1, size = (room + ARCH_PAGE - 1) & ~(ARCH_PAGE - 1);
    int at = (int)offset;
    *ret = 0;
    if (room == 0)
        return NULL;
    uint8_t *area = mmap(NULL, size + ARCH_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED || mprotect(area + size, ARCH_PAGE, PROT_NONE) != 0 ||
        setsockopt(look->fd, SOL_SOCKET, SO_PEEK_OFF, &at, sizeof at) != 0)
        return bunshin_error_os("cannot look into a unix socket's queue");
    ssize_t came = recv(look->fd, area + size - room, room + 1, MSG_PEEK | MSG_DONTWAIT);
    struct bunshin_error *error = came < 0 && errno != EFAULT ? bunshin_error_os("cannot look into a unix socket's queue") : NULL;
    munmap(area, size + ARCH_PAGE);
    *ret = came < 0 ? 0 : (uint64_t)came;
    return error;
}

/* ---- capture: all of it ---- */

static struct bunshin_error *add_message(struct capture *capture, const struct holder *holder, struct look *look, bool with_address,
                                         const uint8_t *bytes, uint64_t size, bool with_descriptors, struct buffer *ret) {
    struct image_message head = {.size = size, .pid = look->sender.pid, .uid = look->sender.uid, .gid = look->sender.gid};
    head.address_size = with_address ? look->address_size : 0;
    head.description_count = with_descriptors ? (uint32_t)look->count : 0;
    struct bunshin_error *error = buffer_append(ret, &head, sizeof head);
    if (!error)
        error = buffer_append(ret, &look->address, head.address_size);
    for (uint32_t i = 0; i < head.description_count; i++) {
        int32_t description = IMAGE_NONE;
        if (error)
            close(look->descriptors[i]);
        else if (!capture)
            error = buffer_append(ret, &look->descriptors[i], sizeof look->descriptors[i]);
        else if (!(error = capture_in_flight(capture, holder, look->descriptors[i], &description)))
            error = buffer_append(ret, &description, sizeof description);
    }
    if (with_descriptors)
        look->count = 0; /* the capture has them now */
    if (!error)
        error = buffer_append(ret, bytes, size);
    return error || ret->size % 8 == 0 ? error : buffer_extend(ret, 8 - ret->size % 8, NULL);
}

static struct bunshin_error *read_stream(struct capture *capture, const struct holder *holder, struct look *look, uint32_t bytes, struct buffer *ret) {
    bool urgent = false;
    struct pollfd state = {.fd = look->fd, .events = POLLPRI};
    bool has_urgent = poll(&state, 1, 0) == 1 && state.revents & POLLPRI;
    struct ucred before = {0};
    bool descriptors_before = false;
    /* Exactly what is there: a look at an empty queue would take away an error that waits behind it. */
    for (uint64_t at = 0; at < bytes;) {
        TRY(look_at(look, at, bytes - at));
        if (look->got <= 0)
            return bunshin_error_new(BUNSHIN_ERROR_OS, EIO, "cannot look into a unix socket: %llu of %u bytes", (unsigned long long)at, bytes);
        uint64_t got = (uint64_t)look->got, border = 0;
        struct bunshin_error *error = look->count ? find_border(look, at, &border) : NULL;
        /* A look that ends where nothing else could have ended it: the byte before is out of band. */
        bool same = !memcmp(&before, &look->sender, sizeof before);
        if (has_urgent && at > 0 && same && !descriptors_before)
            urgent = true;
        if (!error && urgent && has_urgent) {
            char byte;
            has_urgent = false;
            if (look->count || recv(look->fd, &byte, 1, MSG_OOB | MSG_PEEK | MSG_DONTWAIT) != 1 || byte != (char)look->room[0])
                error = capture_refuse(holder, "a unix socket with a byte out of band among descriptors");
            if (!error) {
                size_t begin = ret->size;
                error = add_message(capture, holder, look, false, look->room, 1, false, ret);
                if (!error)
                    ((struct image_message *)(void *)(ret->data + begin))->urgent = 1;
                got--;
                memmove(look->room, look->room + 1, got);
                at++;
            }
        }
        before = look->sender;
        descriptors_before = look->count > 0;
        if (!error && border)
            error = add_message(capture, holder, look, false, look->room, border, false, ret);
        if (!error && got > border)
            error = add_message(capture, holder, look, false, look->room + border, got - border, true, ret);
        look_close(look);
        TRY(error);
        at += got;
    }
    if (has_urgent) /* at the very beginning, or at the very end: alone it has nothing before it that would end a look */
        return capture_refuse(holder, "a unix socket with a byte out of band");
    return NULL;
}

static struct bunshin_error *read_messages(struct capture *capture, const struct holder *holder, struct look *look, int type, struct buffer *ret) {
    for (uint64_t at = 0;;) {
        TRY(look_at(look, at, look->size));
        if (look->got < 0 || (look->got == 0 && !look->told && type == SOCK_SEQPACKET))
            return NULL; /* nothing more, or the end of it */
        if ((size_t)look->got > look->size) {
            look_close(look);
            uint8_t *room = realloc(look->room, (size_t)look->got);
            if (!room)
                return bunshin_error_no_memory();
            look->room = room;
            look->size = (size_t)look->got;
            continue;
        }
        struct bunshin_error *error = add_message(capture, holder, look, type == SOCK_DGRAM, look->room, (uint64_t)look->got, true, ret);
        look_close(look);
        TRY(error);
        at += (uint64_t)look->got;
    }
}

static const int of_looking[] = {SO_PEEK_OFF, SO_PASSCRED, SO_PASSRIGHTS};
#define OF_LOOKING (sizeof of_looking / sizeof *of_looking)

static struct bunshin_error *look_at_all(struct capture *capture, const struct holder *holder, int type, uint32_t bytes, struct buffer *ret) {
    struct look *look = calloc(1, sizeof *look);
    if (!look)
        return bunshin_error_no_memory();
    look->fd = holder->copy;
    look->size = (size_t)bytes + 65536;
    look->room = malloc(look->size);
    int before[OF_LOOKING], on = 1;
    bool has[OF_LOOKING];
    for (size_t i = 0; i < OF_LOOKING; i++) {
        socklen_t length = sizeof before[i];
        has[i] = getsockopt(look->fd, SOL_SOCKET, of_looking[i], &before[i], &length) == 0;
        if (has[i] && of_looking[i] != SO_PEEK_OFF)
            (void)setsockopt(look->fd, SOL_SOCKET, of_looking[i], &on, sizeof on);
    }
    struct bunshin_error *error = NULL;
    if (!look->room)
        error = bunshin_error_no_memory();
    else
        error = type == SOCK_STREAM ? read_stream(capture, holder, look, bytes, ret) : read_messages(capture, holder, look, type, ret);
    for (size_t i = 0; i < OF_LOOKING; i++)
        if (has[i])
            (void)setsockopt(look->fd, SOL_SOCKET, of_looking[i], &before[i], sizeof before[i]);
    free(look->room);
    free(look);
    return error;
}

struct bunshin_error *unix_queue_look(const struct holder *holder, int type, uint32_t bytes, struct buffer *ret) {
    return look_at_all(NULL, holder, type, bytes, ret);
}

struct bunshin_error *unix_queue_capture(struct capture *capture, const struct holder *holder, int type, uint32_t bytes, struct span *ret) {
    struct buffer queue = {0};
    struct bunshin_error *error = look_at_all(capture, holder, type, bytes, &queue);
    if (!error && queue.size)
        error = capture_heap(capture, queue.data, queue.size, ret);
    buffer_deinit(&queue);
    return error;
}

/* ---- rebuild ---- */

bool unix_queue_next(const struct image_header *image, const struct span *queue, uint64_t *at, struct unix_message *ret) {
    return unix_queue_step(IMAGE_HEAP(image, *queue), queue->size, at, ret);
}

bool unix_queue_step(const uint8_t *queue, uint64_t size, uint64_t *at, struct unix_message *ret) {
    if (*at + sizeof ret->head > size)
        return false;
    const uint8_t *data = queue + *at;
    memcpy(&ret->head, data, sizeof ret->head);
    ret->address = (const void *)(data + sizeof ret->head);
    ret->descriptions = (const uint8_t *)ret->address + ret->head.address_size;
    ret->bytes = ret->descriptions + ret->head.description_count * sizeof(int32_t);
    *at = (*at + (uint64_t)(ret->bytes - data) + ret->head.size + 7) & ~7ull;
    return true;
}

/*
 * A queue is full by the memory it takes, and many small messages take more than a large one. Pieces in which it takes as much
 * as it took let a writer wait in a fork where it waited before.
 */
uint64_t unix_queue_piece(uint64_t bytes, uint64_t memory) {
    uint64_t piece = 32768;
    for (; piece > 1; piece /= 2) {
        uint64_t block = 512;
        while (block < piece + 320)
            block *= 2;
        if (bytes / piece * (block + 256) + (bytes % piece ? 768 : 0) >= memory - memory / 16)
            break;
    }
    return piece;
}

/* A process that does not exist yet when descriptions are made has a place holder for its pidfd: now it does. */
static struct bunshin_error *open_pidfd(struct rebuild *rebuild, int32_t description) {
    const struct image_description *record = IMAGE_DESCRIPTION(rebuild->image, description);
    const struct image_pidfd *state = (const void *)IMAGE_HEAP(rebuild->image, record->data);
    if (record->kind != KIND_PIDFD || state->pid < 0)
        return NULL;
    int pidfd = (int)syscall(SYS_pidfd_open, state->pid, (record->flags & O_NONBLOCK) | (state->thread ? O_EXCL : 0));
    if (pidfd < 0 || dup3(pidfd, rebuild_fd(rebuild, description), O_CLOEXEC) < 0)
        return bunshin_error_os("cannot open a pidfd again");
    close(pidfd);
    return NULL;
}

static struct bunshin_error *send_one(int from, struct msghdr *letter, int flags, bool stream) {
    for (;;) {
        ssize_t put = sendmsg(from, letter, flags | MSG_NOSIGNAL | MSG_DONTWAIT);
        struct pollfd wait = {.fd = from, .events = POLLOUT};
        if (put < 0 && errno == EAGAIN && poll(&wait, 1, PATIENCE_MS) == 1)
            continue;
        if (put < 0)
            return bunshin_error_os("cannot fill a unix socket's queue with %zu bytes", letter->msg_iov->iov_len);
        if (!stream || (size_t)put >= letter->msg_iov->iov_len)
            return NULL;
        letter->msg_iov->iov_base = (uint8_t *)letter->msg_iov->iov_base + put;
        letter->msg_iov->iov_len -= (size_t)put;
        if (letter->msg_controllen) { /* the descriptors went with the first part */
            struct cmsghdr *item = CMSG_FIRSTHDR(letter);
            letter->msg_controllen = item->cmsg_type == SCM_CREDENTIALS ? CMSG_SPACE(sizeof(struct ucred)) : 0;
        }
    }
}

static struct bunshin_error *send_message(struct rebuild *rebuild, int from, const struct unix_message *message, const struct sockaddr_un *to,
                                          socklen_t length, uint64_t piece) {
    const struct image_message *head = &message->head;
    union control control = {0};
    struct iovec area = {(void *)(uintptr_t)message->bytes, head->size};
    struct msghdr letter = {.msg_iov = &area, .msg_iovlen = 1, .msg_name = (void *)(uintptr_t)to, .msg_namelen = to ? length : 0};
    letter.msg_control = control.bytes;
    struct cmsghdr *item = &control.align;
    if (head->pid) {
        struct ucred sender = {head->pid, head->uid, head->gid};
        *item = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_CREDENTIALS, .cmsg_len = CMSG_LEN(sizeof sender)};
        memcpy(CMSG_DATA(item), &sender, sizeof sender);
        letter.msg_controllen += CMSG_SPACE(sizeof sender);
        item = (void *)(control.bytes + letter.msg_controllen);
    }
    if (head->description_count) {
        *item = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(head->description_count * sizeof(int))};
        for (uint32_t i = 0; i < head->description_count; i++) {
            int32_t description;
            memcpy(&description, message->descriptions + i * sizeof description, sizeof description);
            int fd = rebuild ? rebuild_fd(rebuild, description) : description;
            memcpy(CMSG_DATA(item) + i * sizeof fd, &fd, sizeof fd);
        }
        letter.msg_controllen += CMSG_SPACE(head->description_count * sizeof(int));
    }
    if (!letter.msg_controllen)
        letter.msg_control = NULL;
    bool stream = piece > 0;
    if (!stream || head->size <= piece || head->description_count)
        return send_one(from, &letter, head->urgent ? MSG_OOB : 0, stream);
    for (uint64_t done = 0; done < head->size; done += piece) {
        area = (struct iovec){(void *)(uintptr_t)(message->bytes + done), head->size - done < piece ? head->size - done : piece};
        TRY(send_one(from, &letter, 0, true));
    }
    return NULL;
}

struct bunshin_error *unix_queue_send(struct rebuild *rebuild, int from, const struct unix_message *message, const struct sockaddr_un *to,
                                      socklen_t length, uint64_t piece) {
    for (uint32_t i = 0; rebuild && i < message->head.description_count; i++) {
        int32_t description;
        memcpy(&description, message->descriptions + i * sizeof description, sizeof description);
        TRY(open_pidfd(rebuild, description));
    }
    pid_t sender = message->head.pid;
    if (sender <= 0 || (rebuild ? tree_has(rebuild, sender) : kill(sender, 0) == 0))
        return send_message(rebuild, from, message, to, length, piece);
    /* The kernel lets credentials name only a pid that somebody has. */
    pid_t stand_in = tree_clone(sender, CLONE_FILES, 0);
    if (stand_in == 0)
        _exit(send_message(rebuild, from, message, to, length, piece) != NULL);
    int status = 0;
    if (stand_in < 0 || waitpid(stand_in, &status, __WALL) != stand_in)
        return bunshin_error_os("cannot send as pid %d, which has ended", sender);
    return status ? bunshin_error_new(BUNSHIN_ERROR_FORK, EIO, "cannot fill a unix socket's queue as pid %d, which has ended", sender) : NULL;
}
