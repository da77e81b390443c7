/*
 * A layer's file in another file system, where it cannot be linked: copied with all that a layer's file is, whiteouts and
 * holes included. Names that were one file stay one. For a process that merges and ends: what it remembers is never freed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "keeper/keeper.h"

/* ---- names of one file ---- */

static struct {
    struct copied {
        dev_t device;
        ino_t inode;
        char *path;
    } *entry;
    size_t count, room;
} copied;

static const char *find(const struct stat *info) {
    for (size_t i = 0; i < copied.count; i++)
        if (copied.entry[i].inode == info->st_ino && copied.entry[i].device == info->st_dev)
            return copied.entry[i].path;
    return NULL;
}

static bool remember(const struct stat *info, int to, const char *name) {
    char link[64], folder[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", to);
    ssize_t length = readlink(link, folder, sizeof folder - 1);
    if (length <= 0)
        return false;
    folder[length] = '\0';
    if (copied.count == copied.room) {
        size_t room = copied.room ? copied.room * 2 : 64;
        struct copied *grown = realloc(copied.entry, room * sizeof *grown);
        if (!grown)
            return false;
        copied.entry = grown;
        copied.room = room;
    }
    struct copied *entry = &copied.entry[copied.count];
    *entry = (struct copied){.device = info->st_dev, .inode = info->st_ino};
    if (asprintf(&entry->path, "%s/%s", folder, name) < 0)
        return false;
    copied.count++;
    return true;
}

/* ---- one file ---- */

static bool copy_range(int source, int target, off_t at, off_t end) {
    static char buffer[1 << 16];
    while (at < end) {
        size_t wanted = end - at < (off_t)sizeof buffer ? (size_t)(end - at) : sizeof buffer;
        ssize_t got = pread(source, buffer, wanted, at);
        if (got <= 0)
            return false;
        for (ssize_t done = 0; done < got;) {
            ssize_t put = pwrite(target, buffer + done, (size_t)(got - done), at + done);
            if (put <= 0)
                return false;
            done += put;
        }
        at += got;
    }
    return true;
}

static bool copy_content(int source, int target, off_t size) {
    if (ftruncate(target, size) != 0)
        return false;
    for (off_t at = 0; at < size;) {
        off_t data = lseek(source, at, SEEK_DATA);
        if (data < 0)
            return errno == ENXIO; /* a hole to the end */
        off_t hole = lseek(source, data, SEEK_HOLE);
        if (hole < 0 || !copy_range(source, target, data, hole))
            return false;
        at = hole;
    }
    return true;
}

static bool copy_regular(int from, int to, const char *name, const struct stat *info) {
    int source = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int target = source < 0 ? -1 : openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool ok = target >= 0 && copy_content(source, target, info->st_size) && copy_attributes(source, target, info);
    if (source >= 0)
        close(source);
    if (target >= 0)
        close(target);
    return ok;
}

/* Links, FIFOs, sockets, devices; a whiteout is a device that anybody may make. */
static bool copy_special(int from, int to, const char *name, const struct stat *info) {
    if (S_ISLNK(info->st_mode)) {
        char text[4096];
        ssize_t length = readlinkat(from, name, text, sizeof text - 1);
        if (length < 0)
            return false;
        text[length] = '\0';
        if (symlinkat(text, to, name) != 0)
            return false;
    } else if (mknodat(to, name, info->st_mode, info->st_rdev) != 0 || fchmodat(to, name, info->st_mode & 07777, 0) != 0)
        return false;
    struct timespec times[2] = {info->st_atim, info->st_mtim};
    return fchownat(to, name, info->st_uid, info->st_gid, AT_SYMLINK_NOFOLLOW) == 0 &&
           utimensat(to, name, times, AT_SYMLINK_NOFOLLOW) == 0;
}

bool copy_file_at(int from, int to, const char *name, const struct stat *info) {
    const char *path = info->st_nlink > 1 ? find(info) : NULL;
    if (path)
        return linkat(AT_FDCWD, path, to, name, 0) == 0;
    if (!(S_ISREG(info->st_mode) ? copy_regular : copy_special)(from, to, name, info))
        return false;
    return info->st_nlink < 2 || remember(info, to, name);
}
