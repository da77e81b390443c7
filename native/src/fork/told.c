/*
 * Who is told, by a signal, of what happens to a file: descriptors that became ready (O_ASYNC), leases that are broken. The kernel remembers the
 * number of the descriptor it was asked through, and names it in the signal: so each holder asks for itself, in its stub.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fork/rebuild.h"

static int lease(int fd, bool exclusive) {
    struct stat info;
    if (fstat(fd, &info) != 0)
        return errno;
    setfsuid(info.st_uid); /* only to a file's owner it is given */
    int failed = fcntl(fd, F_SETLEASE, exclusive ? F_WRLCK : F_RDLCK) != 0 ? errno : 0;
    setfsuid(geteuid());
    return failed;
}

int told_ask(struct rebuild *rebuild, const struct image_process *process) {
    struct image_header *image = rebuild->image;
    for (int32_t i = 0; i < process->descriptor_count; i++) {
        const struct image_descriptor *descriptor = IMAGE_DESCRIPTOR(image, process->first_descriptor + i);
        const struct image_description *record = IMAGE_DESCRIPTION(image, descriptor->description);
        if (!(record->flags & O_ASYNC) || record->flags & O_PATH || record->holder != process->pid || record->holder_fd != descriptor->fd)
            continue;
        int flags = fcntl(descriptor->fd, F_GETFL);
        (void)fcntl(descriptor->fd, F_SETFL, flags & ~O_ASYNC);
        if (fcntl(descriptor->fd, F_SETFL, flags | O_ASYNC) != 0)
            return errno;
    }
    for (size_t i = 0; i < image->table[TABLE_LOCK].count; i++) {
        const struct image_lock *lock = IMAGE_LOCK(image, i);
        if (lock->kind != LOCK_LEASE || IMAGE_PROCESS(image, lock->process) != process)
            continue;
        int failed = lease(lock->fd, lock->exclusive);
        if (failed)
            return failed;
    }
    return 0;
}

void told_whom(struct rebuild *rebuild) {
    for (int32_t i = 0; i < (int32_t)rebuild->image->table[TABLE_DESCRIPTION].count; i++) {
        const struct image_description *record = IMAGE_DESCRIPTION(rebuild->image, i);
        if (!record->owner && !record->owner_signal)
            continue;
        struct f_owner_ex owner = {record->owner_type, record->owner};
        if (record->owner)
            (void)fcntl(rebuild_fd(rebuild, i), F_SETOWN_EX, &owner);
        (void)fcntl(rebuild_fd(rebuild, i), F_SETSIG, record->owner_signal);
    }
}
