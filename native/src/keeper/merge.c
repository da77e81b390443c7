/*
 * Many sealed layers become one. A sealed layer never changes, so its files are linked, not copied: merging costs a link a
 * file, but into another file system, or where the new one is to stand apart: programs see how many links a file has. Whiteouts and opaque marks keep their meaning for what lies below the merged layers.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "keeper/keeper.h"

#define OPAQUE "user.overlay.opaque"

static bool is_opaque(int directory) {
    char value = 0;
    return fgetxattr(directory, OPAQUE, &value, 1) == 1 && value == 'y';
}

bool copy_attributes(int from, int to, const struct stat *info) {
    char names[4096], value[4096];
    ssize_t length = flistxattr(from, names, sizeof names);
    for (ssize_t at = 0; at < length; at += (ssize_t)strlen(names + at) + 1) {
        ssize_t size = fgetxattr(from, names + at, value, sizeof value);
        if (size >= 0 && fsetxattr(to, names + at, value, (size_t)size, 0) != 0)
            return false;
    }
    struct timespec times[2] = {info->st_atim, info->st_mtim};
    return fchown(to, info->st_uid, info->st_gid) == 0 && fchmod(to, info->st_mode & 07777) == 0 && futimens(to, times) == 0;
}

static bool merge_directory(int from, int to, bool apart);

static bool merge_entry(int from, int to, const char *name, bool apart) {
    struct stat info, there;
    if (fstatat(from, name, &info, AT_SYMLINK_NOFOLLOW) != 0)
        return false;
    bool exists = fstatat(to, name, &there, AT_SYMLINK_NOFOLLOW) == 0;
    if (!S_ISDIR(info.st_mode)) {
        if (exists && !remove_tree_at(to, name))
            return false;
        if (!apart && linkat(from, name, to, name, 0) == 0)
            return true;
        /* Besides another file system: one that has no more links for this file, or none for what is not ours. */
        return (apart || errno == EXDEV || errno == EMLINK || errno == EPERM) && copy_file_at(from, to, name, &info);
    }
    int source = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (source < 0)
        return false;
    bool covered = exists && !S_ISDIR(there.st_mode); /* a whiteout or a file below hides what lies further down */
    bool ok = true;
    if (exists && (covered || is_opaque(source)))
        ok = remove_tree_at(to, name);
    if (ok && mkdirat(to, name, 0700) != 0)
        ok = errno == EEXIST;
    int target = ok ? openat(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    ok = target >= 0 && merge_directory(source, target, apart);
    if (ok && covered)
        ok = fsetxattr(target, OPAQUE, "y", 1, 0) == 0;
    if (target >= 0)
        close(target);
    close(source);
    return ok;
}

static bool merge_directory(int from, int to, bool apart) {
    int copy = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = copy < 0 ? NULL : fdopendir(copy);
    if (!stream) {
        if (copy >= 0)
            close(copy);
        return false;
    }
    bool ok = true;
    for (struct dirent *entry; ok && (entry = readdir(stream));)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            ok = merge_entry(from, to, entry->d_name, apart);
    closedir(stream);
    struct stat info;
    return ok && fstat(from, &info) == 0 && copy_attributes(from, to, &info);
}

bool merge_layers(const char *target, const char *const *layers, size_t count, bool apart) {
    if (mkdir(target, 0755) != 0 && errno != EEXIST)
        return false;
    int to = open(target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = to >= 0;
    for (size_t i = count; ok && i > 0; i--) { /* given top first; merged from the bottom */
        int from = open(layers[i - 1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        ok = from >= 0 && merge_directory(from, to, apart);
        if (from >= 0)
            close(from);
    }
    if (to >= 0)
        close(to);
    return ok;
}
