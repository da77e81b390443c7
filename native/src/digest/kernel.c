/* What the kernel keeps for the workspace and no file or process holds: System V and POSIX objects, mounts, names. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/procfs.h"
#include "digest/digest.h"
#include "fork/capture.h"

static bool has_sysv(struct init *init) {
    static const char *const lists[] = {"sysvipc/shm", "sysvipc/sem", "sysvipc/msg"};
    struct buffer text = {0};
    bool found = false;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (procfs_read(init->proc, lists[i], &text)) {
            const char *line = strchr((char *)text.data, '\n'); /* the first is a heading */
            found |= line && line[1];
        }
    buffer_deinit(&text);
    return found;
}

static bool has_queues(void) {
    int mount = mqueue_directory(), fd = mount < 0 ? -1 : openat(mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    bool found = false;
    for (struct dirent *entry; stream && (entry = readdir(stream));)
        found |= *entry->d_name != '.';
    if (stream)
        closedir(stream);
    return found;
}

/* Sockets of a kind that are in use, as /proc/net/sockstat counts them. */
static unsigned in_use(struct init *init, const char *kind) {
    static const char *const lists[] = {"self/net/sockstat", "self/net/sockstat6"};
    struct buffer text = {0};
    unsigned all = 0, count = 0;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (procfs_read(init->proc, lists[i], &text)) {
            char name[16];
            snprintf(name, sizeof name, "\n%s%s: inuse ", kind, i ? "6" : "");
            const char *at = strstr((char *)text.data, name);
            if (!at && !strncmp((char *)text.data, name + 1, strlen(name + 1)))
                at = (char *)text.data - 1;
            if (at && sscanf(at + strlen(name), "%u", &count) == 1)
                all += count;
        }
    buffer_deinit(&text);
    return all;
}

/* Whether a table holds a socket with data that nobody has taken; *ret_connected: or one that is connected. */
static bool has_queue(struct init *init, const char *list, bool *ret_connected) {
    struct buffer text = {0};
    bool found = false;
    if (procfs_read(init->proc, list, &text))
        for (const char *line = strchr((char *)text.data, '\n'); line && line[1]; line = strchr(line + 1, '\n')) {
            unsigned state, sent, received;
            if (sscanf(line, " %*d: %*s %*s %x %x:%x", &state, &sent, &received) != 3 || state == 6)
                continue; /* 6: only waits for its number to be free again */
            found |= sent || received;
            *ret_connected |= state != 10; /* 10: listens */
        }
    buffer_deinit(&text);
    return found;
}

/*
 * Data that was sent and not taken, or connections that were made and not accepted: only the network's own tables tell, and
 * that of TCP takes milliseconds to read. Where all that there was were listeners, and there are as many sockets as then,
 * nobody is connected: who closes a listener runs, and counts by that.
 */
static bool has_queued(struct init *init) {
    static unsigned listeners;
    bool connected = false, found = false;
    if (init->settings.network_host)
        return false;
    unsigned tcp = in_use(init, "TCP");
    if (tcp && tcp != listeners) {
        found = has_queue(init, "self/net/tcp", &connected);
        found |= has_queue(init, "self/net/tcp6", &connected);
        listeners = connected ? 0 : tcp;
    }
    if (in_use(init, "UDP")) {
        found |= has_queue(init, "self/net/udp", &connected);
        found |= has_queue(init, "self/net/udp6", &connected);
    }
    return found;
}

/* Tools can mount only where they have the right to; what such mounts hold is not looked at. */
static bool has_mounts(struct init *init) {
    struct mountinfo now = {0};
    if (!(init->settings.capabilities >> CAP_SYS_ADMIN & 1))
        return false;
    struct bunshin_error *error = mountinfo_read(init->proc, "self", &now);
    bool more = error || now.count != init->mounts.count;
    bunshin_error_destroy(error);
    mountinfo_deinit(&now);
    return more;
}

struct bunshin_error *kernel_digest(struct digest *digest, struct hash *ret) {
    struct hash_state state;
    struct utsname names;
    bool sysv = has_sysv(digest->init), queues = has_queues(), mounts = has_mounts(digest->init);
    bool queued = has_queued(digest->init);
    hash_init(&state);
    if (uname(&names) == 0)
        hash_text(&state, names.nodename, strlen(names.nodename));
    hash_number(&state, (uint64_t)sysv << 2 | (uint64_t)queues << 1 | mounts);
    if (sysv)
        TRY(digest_unique(digest, "System V objects"));
    if (queues)
        TRY(digest_unique(digest, "POSIX message queues"));
    if (mounts)
        TRY(digest_unique(digest, "mounts made inside"));
    if (queued)
        TRY(digest_unique(digest, "data in sockets that nobody has taken"));
    digest->by_history |= sysv || queues || mounts || queued;
    *ret = hash_end(&state);
    return NULL;
}
