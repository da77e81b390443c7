/* For victims that send more than bytes over unix sockets: descriptors and credentials. */
#include "victim.h"
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#define MOST 16

struct letter {
    char text[64];
    ssize_t size;
    int fds[MOST], count, flags;
    struct ucred from; /* pid 0: not said */
    struct sockaddr_un address;
    socklen_t address_size;
};

static inline ssize_t post_to(int fd, const char *text, size_t size, const int *fds, int count, const struct ucred *as, int flags,
                              const struct sockaddr_un *to, socklen_t length) {
    char control[CMSG_SPACE(sizeof(int) * MOST) + CMSG_SPACE(sizeof(struct ucred))] = "";
    struct iovec part = {(void *)(uintptr_t)text, size};
    struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_name = (void *)(uintptr_t)to, .msg_namelen = length};
    struct cmsghdr *item = (void *)control;
    if (as) {
        *item = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_CREDENTIALS, .cmsg_len = CMSG_LEN(sizeof *as)};
        memcpy(CMSG_DATA(item), as, sizeof *as);
        head.msg_controllen += CMSG_SPACE(sizeof *as);
        item = (void *)(control + head.msg_controllen);
    }
    if (count) {
        *item = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count)};
        memcpy(CMSG_DATA(item), fds, sizeof(int) * (size_t)count);
        head.msg_controllen += CMSG_SPACE(sizeof(int) * (size_t)count);
    }
    return sendmsg(fd, &head, flags);
}

static inline void post(int fd, const char *text, const int *fds, int count) {
    must(post_to(fd, text, strlen(text), fds, count, NULL, 0, NULL, 0));
}

/* Posts one descriptor and keeps none of it. */
static inline void post_away(int fd, const char *text, int passed) {
    must(passed);
    post(fd, text, &passed, 1);
    close(passed);
}

static inline struct letter fetch_with(int fd, size_t size, size_t room, int flags) {
    static union {
        struct cmsghdr align;
        char bytes[1024];
    } control;
    struct letter letter = {0};
    struct iovec part = {letter.text, size};
    struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = room,
                          .msg_name = &letter.address, .msg_namelen = sizeof letter.address};
    letter.size = recvmsg(fd, &head, flags | MSG_DONTWAIT);
    letter.flags = head.msg_flags;
    letter.address_size = head.msg_namelen;
    if (letter.size < 0)
        return letter;
    for (struct cmsghdr *item = CMSG_FIRSTHDR(&head); item; item = CMSG_NXTHDR(&head, item)) {
        if (item->cmsg_type == SCM_RIGHTS) {
            letter.count = (int)((item->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            memcpy(letter.fds, CMSG_DATA(item), sizeof(int) * (size_t)letter.count);
        }
        if (item->cmsg_type == SCM_CREDENTIALS)
            memcpy(&letter.from, CMSG_DATA(item), sizeof letter.from);
    }
    return letter;
}

static inline struct letter fetch(int fd) { return fetch_with(fd, sizeof(((struct letter *)0)->text), 1024, 0); }

/* The next letter must hold these words and one descriptor, which is returned. */
static inline int fetch_one(int fd, const char *text) {
    struct letter letter = fetch(fd);
    expect(letter.size == (ssize_t)strlen(text) && !memcmp(letter.text, text, strlen(text)), "got %zd bytes, %.20s, not %s", letter.size, letter.text, text);
    expect(letter.count == 1, "%s came with %d descriptors", text, letter.count);
    return letter.fds[0];
}

static inline socklen_t name_of(struct sockaddr_un *address, const char *name) {
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    size_t length = strlen(name);
    memcpy(address->sun_path, name, length + (length < sizeof address->sun_path));
    if (*name == '@')
        address->sun_path[0] = '\0';
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (*name != '@'));
}

static inline int bound(int type, const char *name) {
    struct sockaddr_un address;
    socklen_t length = name_of(&address, name);
    int fd = (int)must(socket(AF_UNIX, type, 0));
    must(bind(fd, (struct sockaddr *)&address, length));
    return fd;
}

static inline int dial(int fd, const char *name) {
    struct sockaddr_un address;
    socklen_t length = name_of(&address, name);
    return connect(fd, (struct sockaddr *)&address, length);
}

static inline int dialled(int type, const char *name) {
    int fd = (int)must(socket(AF_UNIX, type, 0));
    must(dial(fd, name));
    return fd;
}

static inline void expect_text(int fd, const char *text) {
    char got[64] = "";
    ssize_t size = recv(fd, got, sizeof got - 1, MSG_DONTWAIT);
    expect(size == (ssize_t)strlen(text) && !strcmp(got, text), "read %zd bytes, %s, not %s", size, got, text);
}
