/*
 * Names of unix sockets. A name in the file system is two things: the words that were given to bind(), which the socket
 * shows for ever, and a file, which may have been renamed or deleted since, or which the words do not lead to any more
 * (another working directory, /proc/self/fd/N/…). The kernel gives out the file (SIOCUNIXFILE). Where both do not agree, the
 * socket is bound below a root of its own in which the words do lead somewhere, and the file is moved to where it belongs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fork/socket_unix.h"

#define SIOCUNIXFILE 0x89e0

bool unix_name_is(const struct span *name) { return name->size > offsetof(struct sockaddr_un, sun_path); }

bool unix_name_equal(const struct image_header *image, const struct span *one, const struct span *other) {
    return one->size == other->size && !memcmp(IMAGE_HEAP(image, *one), IMAGE_HEAP(image, *other), one->size);
}

static bool is_path(const struct sockaddr_un *address, uint64_t size) {
    return size > offsetof(struct sockaddr_un, sun_path) && address->sun_path[0];
}

int unix_name_file(int fd) {
    int file = ioctl(fd, SIOCUNIXFILE, 0);
    if (file >= 0)
        (void)fcntl(file, F_SETFD, FD_CLOEXEC);
    return file;
}

/* The path of an open file, where it still has that. */
static bool path_of(int file, char *ret, size_t size) {
    char link[32];
    struct stat there, here;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, ret, size - 1);
    if (length <= 0)
        return false;
    ret[length] = '\0';
    return fstat(file, &here) == 0 && lstat(ret, &there) == 0 && here.st_ino == there.st_ino && here.st_dev == there.st_dev;
}

struct bunshin_error *unix_name_capture(struct capture *capture, const struct holder *holder, struct image_socket *record) {
    const struct sockaddr_un *address = (const void *)(capture->table[TABLE_HEAP].data + record->name.offset);
    if (!is_path(address, record->name.size))
        return NULL;
    record->named = 1;
    int file = unix_name_file(holder->copy);
    char place[4200];
    struct stat info;
    if (file < 0)
        return NULL; /* the words alone: an end that was accepted, of a listener without a file */
    struct bunshin_error *error = NULL;
    if (path_of(file, place, sizeof place) && fstat(file, &info) == 0) {
        record->mode = info.st_mode & 07777;
        record->uid = info.st_uid;
        record->gid = info.st_gid;
        error = capture_text(capture, place, &record->place);
    }
    close(file);
    return error;
}

/* ---- rebuild ---- */

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where) {
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

/* Binds below `base`; the file goes to `place` afterwards, or away. */
static struct bunshin_error *bind_below(int fd, const struct sockaddr_un *address, socklen_t length, const char *base, const char *place) {
    char root[4200], words[sizeof address->sun_path + 1] = "", found[4400];
    memcpy(words, address->sun_path, length - offsetof(struct sockaddr_un, sun_path));
    snprintf(root, sizeof root, "%s/.bunshin-socket", base);
    int old = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC), file = -1;
    if (old < 0 || (mkdir(root, 0700) != 0 && errno != EEXIST) || chroot(root) != 0) {
        if (old >= 0)
            close(old);
        return bunshin_error_os("cannot make room to bind a socket to %s", words);
    }
    bool bound = chdir("/") == 0;
    for (char *slash = strchr(words + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(words, 0700);
        *slash = '/';
    }
    bound = bound && bind(fd, (const struct sockaddr *)address, length) == 0;
    int number = errno;
    if (fchdir(old) != 0 || chroot(".") != 0) {
        close(old);
        return bunshin_error_os("cannot come back to the root");
    }
    close(old);
    errno = number;
    struct bunshin_error *error = bound ? NULL : bunshin_error_os("cannot bind a unix socket to %s again", words);
    if (!error && place && ((file = unix_name_file(fd)) < 0 || !path_of(file, found, sizeof found) || rename(found, place) != 0))
        error = bunshin_error_os("cannot move a socket's file to %s", place);
    if (file >= 0)
        close(file);
    (void)nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return error;
}

static struct bunshin_error *bind_path(struct rebuild *rebuild, const struct image_socket *record, const struct sockaddr_un *address, int fd) {
    socklen_t length = (socklen_t)record->name.size;
    if (!record->place.size)
        return bind_below(fd, address, length, INIT_PRIVATE, NULL);
    const char *place = (const char *)IMAGE_HEAP(rebuild->image, record->place);
    size_t words = length - offsetof(struct sockaddr_un, sun_path);
    if (!strncmp(place, address->sun_path, words) && strlen(place) <= words) {
        (void)unlink(place); /* the file of the sealed socket: this one takes its place */
        if (bind(fd, (const struct sockaddr *)address, length) != 0)
            return bunshin_error_os("cannot bind a unix socket to %s", place);
    } else {
        char base[4200];
        snprintf(base, sizeof base, "%s", place);
        *strrchr(base, '/') = '\0';
        TRY(bind_below(fd, address, length, base, place));
    }
    if (chmod(place, record->mode) != 0 || lchown(place, record->uid, record->gid) != 0)
        return bunshin_error_os("cannot set the mode of %s", place);
    return NULL;
}

struct bunshin_error *unix_name_bind(struct rebuild *rebuild, const struct image_socket *record, int fd) {
    const struct sockaddr_un *address = (const void *)IMAGE_HEAP(rebuild->image, record->name);
    if (!unix_name_is(&record->name))
        return NULL;
    if (is_path(address, record->name.size))
        return bind_path(rebuild, record, address, fd);
    if (bind(fd, (const struct sockaddr *)address, (socklen_t)record->name.size) != 0)
        return bunshin_error_os("cannot bind a unix socket to its abstract name");
    return NULL;
}

struct bunshin_error *unix_name_bind_unseen(struct rebuild *rebuild, const struct span *name, int fd) {
    struct image_socket record = {.name = *name};
    return unix_name_bind(rebuild, &record, fd);
}

struct bunshin_error *unix_name_bind_gone(const struct sockaddr_un *name, socklen_t length, int fd) {
    if (is_path(name, length))
        return bind_below(fd, name, length, INIT_PRIVATE, NULL);
    return bind(fd, (const struct sockaddr *)name, length) == 0 ? NULL : bunshin_error_os("cannot bind a unix socket to its abstract name");
}

struct bunshin_error *unix_name_reach(struct rebuild *rebuild, const struct span *name, int fd, struct unix_reach *ret) {
    *ret = (struct unix_reach){.length = (socklen_t)name->size, .file = -1};
    memcpy(&ret->address, IMAGE_HEAP(rebuild->image, *name), name->size);
    if (!is_path(&ret->address, name->size))
        return NULL;
    if ((ret->file = unix_name_file(fd)) < 0)
        return bunshin_error_os("cannot reach the socket %.100s", ret->address.sun_path);
    int words = snprintf(ret->address.sun_path, sizeof ret->address.sun_path, "/proc/self/fd/%d", ret->file);
    ret->length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)words + 1);
    return NULL;
}
