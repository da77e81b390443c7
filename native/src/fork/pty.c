/* Pseudo-terminals: pairs with their index, settings, size and what waits in them; and who is controlled by them. */
#define _GNU_SOURCE
#include "fork/pty.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fork/capture.h"
#include "fork/described.h"
#include "fork/rebuild.h"

#define TTY_SLAVE_MAJOR 136

/* ---- capture ---- */

static int32_t find_pty(struct capture *capture, int index) {
    for (int32_t i = 0; i < CAPTURE_COUNT(capture, TABLE_PTY, struct image_pty); i++)
        if (CAPTURE_AT(capture, TABLE_PTY, struct image_pty, i)->index == index)
            return i;
    return IMAGE_NONE;
}

static int index_of_device(unsigned device) { return (int)((device & 0xff) | (device >> 12 & 0xfff00)); }

static struct bunshin_error *capture_master(struct capture *capture, const struct holder *holder, int index, int32_t *ret) {
    struct image_pty record = {.index = index, .master = -1};
    if (ioctl(holder->copy, TCGETS2, record.settings) != 0 || ioctl(holder->copy, TIOCGWINSZ, record.window) != 0)
        return bunshin_error_os("cannot read the settings of pty %d", index);
    (void)ioctl(holder->copy, TIOCGPTLCK, &record.locked);
    (void)ioctl(holder->copy, TIOCGPKT, &record.packet_mode);
    if (holder->process) /* pid 1's own shows nothing that anybody waits for */
        record.master = holder->copy;
    return capture_add(capture, TABLE_PTY, &record, sizeof record, ret);
}

struct bunshin_error *pty_capture(struct capture *capture, const struct holder *holder, struct image_description *ret) {
    int index;
    unsigned device = 0;
    if (ioctl(holder->copy, TIOCGPTN, &index) == 0) {
        ret->kind = KIND_PTY_MASTER;
        ret->object = find_pty(capture, index);
        if (ret->object == IMAGE_NONE)
            TRY(capture_master(capture, holder, index, &ret->object));
        return NULL;
    }
    /* A slave whose master is gone answers nothing any more, and has only its name left. */
    bool hung_up = ioctl(holder->copy, TIOCGDEV, &device) != 0 && errno == EIO;
    if (hung_up ? sscanf(holder->link, "/dev/pts/%d", &index) != 1 : (device >> 8 & 0xfff) < TTY_SLAVE_MAJOR)
        return capture_refuse(holder, "the terminal %.60s, which is not a pty of this workspace", holder->link);
    ret->kind = KIND_PTY_SLAVE;
    ret->object = hung_up ? index : index_of_device(device); /* the index for now: its master may be seen later */
    ret->hung_up = hung_up;
    return NULL;
}

/* Takes out what waits in a pair, and puts it back. */
static struct bunshin_error *look_into(struct capture *capture, int32_t index, int slave) {
    struct image_pty record = *CAPTURE_AT(capture, TABLE_PTY, struct image_pty, index);
    struct pty_queues queues = {0};
    int master = record.master, off = 0, flags[2] = {fcntl(master, F_GETFL), fcntl(slave, F_GETFL)};
    (void)ioctl(slave, TIOCGEXCL, &record.exclusive);
    fcntl(master, F_SETFL, flags[0] | O_NONBLOCK);
    fcntl(slave, F_SETFL, flags[1] | O_NONBLOCK);
    if (record.packet_mode)
        (void)ioctl(master, TIOCPKT, &off);
    struct bunshin_error *error = pty_take_queues(master, slave, record.settings, &queues);
    struct bunshin_error *put = pty_put_queues(master, slave, record.settings, &queues);
    error = error ? (bunshin_error_destroy(put), error) : put;
    if (record.packet_mode)
        (void)ioctl(master, TIOCPKT, &record.packet_mode);
    fcntl(master, F_SETFL, flags[0]);
    fcntl(slave, F_SETFL, flags[1]);
    record.held = (int32_t)queues.held;
    if (!error)
        error = capture_heap(capture, queues.typed.data, queues.typed.size, &record.to_slave);
    if (!error)
        error = capture_heap(capture, queues.ends.data, queues.ends.size, &record.ends);
    if (!error)
        error = capture_heap(capture, queues.shown.data, queues.shown.size, &record.to_master);
    pty_queues_deinit(&queues);
    *CAPTURE_AT(capture, TABLE_PTY, struct image_pty, index) = record;
    return error;
}

/* An opening of the slave side that can read and write. */
static int find_slave(struct capture *capture, int32_t pty, bool *ret_held) {
    *ret_held = false;
    for (int32_t i = 0; i < CAPTURE_COUNT(capture, TABLE_DESCRIPTION, struct image_description); i++) {
        const struct image_description *record = CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, i);
        if (record->kind != KIND_PTY_SLAVE || record->object != pty || record->hung_up)
            continue;
        *ret_held = true;
        const struct described *described = described_find(capture, i);
        if (described && described->copy >= 0 && (record->flags & O_ACCMODE) == O_RDWR)
            return described->copy;
    }
    return -1;
}

static struct bunshin_error *capture_waiting(struct capture *capture, int32_t index) {
    struct image_pty *record = CAPTURE_AT(capture, TABLE_PTY, struct image_pty, index);
    struct pollfd hang_up = {record->master, 0, 0};
    int shown = 0;
    bool held;
    if (record->master < 0)
        return NULL;
    int slave = find_slave(capture, index, &held);
    if (slave >= 0)
        return look_into(capture, index, slave);
    poll(&hang_up, 1, 0);
    if (!held && !(hang_up.revents & POLLHUP)) { /* opening it would show: the master hears of the first closing */
        record->slave_never_open = 1;
        if (ioctl(record->master, FIONREAD, &shown) == 0 && shown)
            return bunshin_error_new(BUNSHIN_ERROR_UNSUPPORTED, 0, "cannot fork: pty %d has input, and nobody has opened it yet", record->index);
        return NULL;
    }
    slave = ioctl(record->master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (slave < 0)
        return NULL; /* its other side cannot be opened: nothing gets through either */
    struct bunshin_error *error = look_into(capture, index, slave);
    close(slave);
    return error;
}

struct bunshin_error *pty_connect(struct capture *capture) {
    for (int32_t i = 0; i < CAPTURE_COUNT(capture, TABLE_DESCRIPTION, struct image_description); i++) {
        struct image_description *record = CAPTURE_AT(capture, TABLE_DESCRIPTION, struct image_description, i);
        if (record->kind != KIND_PTY_SLAVE)
            continue;
        int32_t pty = find_pty(capture, record->object);
        if (pty == IMAGE_NONE && record->hung_up)
            TRY(capture_add(capture, TABLE_PTY, &(struct image_pty){.index = record->object, .master = -1, .hung_up = 1}, sizeof(struct image_pty), &pty));
        if (pty == IMAGE_NONE)
            return bunshin_error_unsupported(record->holder, "", record->holder_fd, "a terminal whose other side nobody has, /dev/pts/%d",
                                             record->object);
        record->object = pty;
    }
    for (int32_t i = 0; i < CAPTURE_COUNT(capture, TABLE_PTY, struct image_pty); i++)
        TRY(capture_waiting(capture, i));
    for (int32_t i = 0; i < CAPTURE_COUNT(capture, TABLE_PROCESS, struct image_process); i++) {
        struct image_process *process = CAPTURE_AT(capture, TABLE_PROCESS, struct image_process, i);
        if (process->terminal == IMAGE_NONE)
            continue;
        process->terminal = find_pty(capture, index_of_device((unsigned)process->terminal));
        if (process->terminal == IMAGE_NONE)
            return bunshin_error_unsupported(process->pid, process->name, -1, "a controlling terminal that is not a pty of this workspace");
    }
    return NULL;
}

/* ---- rebuild ---- */

/* The kernel gives the lowest free index: pairs are opened until the wanted one comes, and the others closed again. */
static struct bunshin_error *open_pair(const struct image_pty *pty, int *ret_master, int *ret_slave) {
    int waste[1024], count = 0, master = -1, unlock = 0;
    struct bunshin_error *error = NULL;
    while (!error) {
        int index;
        master = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
        if (master < 0 || ioctl(master, TIOCGPTN, &index) != 0)
            error = bunshin_error_os("cannot open pty %d", pty->index);
        else if (index == pty->index)
            break;
        else if (index > pty->index || count == 1024)
            error = bunshin_error_new(BUNSHIN_ERROR_FORK, EBUSY, "cannot open pty %d: the kernel gave %d", pty->index, index);
        else
            waste[count++] = master;
    }
    for (int i = 0; i < count; i++)
        close(waste[i]);
    if (!error && ioctl(master, TIOCSPTLCK, &unlock) != 0)
        error = bunshin_error_os("cannot unlock pty %d", pty->index);
    int slave = error || pty->slave_never_open ? -1 : ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (!error && slave < 0 && !pty->slave_never_open)
        error = bunshin_error_os("cannot open the other side of pty %d", pty->index);
    if (!error && !pty->hung_up && ioctl(master, TIOCSWINSZ, pty->window) != 0)
        error = bunshin_error_os("cannot set up pty %d", pty->index);
    *ret_master = master;
    *ret_slave = slave;
    return error;
}

static struct bunshin_error *fill_pair(struct rebuild *rebuild, const struct image_pty *pty, int master, int slave) {
    struct image_header *image = rebuild->image;
    if (pty->hung_up)
        return NULL;
    if (slave < 0)
        return ioctl(master, TCSETS2, pty->settings) ? bunshin_error_os("cannot set up pty %d", pty->index) : NULL;
    struct pty_queues queues = {
        .typed = {.data = IMAGE_HEAP(image, pty->to_slave), .size = pty->to_slave.size},
        .ends = {.data = IMAGE_HEAP(image, pty->ends), .size = pty->ends.size},
        .shown = {.data = IMAGE_HEAP(image, pty->to_master), .size = pty->to_master.size},
        .held = (enum pty_held)pty->held,
    };
    TRY(pty_put_queues(master, slave, pty->settings, &queues));
    return pty->packet_mode && ioctl(master, TIOCPKT, &pty->packet_mode) ? bunshin_error_os("cannot set up pty %d", pty->index) : NULL;
}

/* The openings of one pair. The master is a single one; each of the slave's is opened anew, by its name. */
static struct bunshin_error *place_pair(struct rebuild *rebuild, int32_t index, int *master) {
    struct image_header *image = rebuild->image;
    for (int32_t i = 0; i < (int32_t)image->table[TABLE_DESCRIPTION].count; i++) {
        const struct image_description *record = IMAGE_DESCRIPTION(image, i);
        if (record->object != index || (record->kind != KIND_PTY_MASTER && record->kind != KIND_PTY_SLAVE))
            continue;
        char path[32];
        snprintf(path, sizeof path, "/dev/pts/%d", IMAGE_PTY(image, index)->index);
        int fd = record->kind == KIND_PTY_MASTER ? *master : open(path, (record->flags & O_ACCMODE) | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0)
            return bunshin_error_os("cannot open %s", path);
        if (record->kind == KIND_PTY_MASTER)
            *master = -1;
        TRY(rebuild_place(rebuild, i, fd));
    }
    return NULL;
}

struct bunshin_error *pty_rebuild_all(struct rebuild *rebuild) {
    struct image_header *image = rebuild->image;
    int32_t count = (int32_t)image->table[TABLE_PTY].count;
    if (count && !(rebuild->terminal = malloc(sizeof *rebuild->terminal * (size_t)count)))
        return bunshin_error_no_memory();
    for (int32_t p = 0; p < count; p++) {
        const struct image_pty *pty = IMAGE_PTY(image, p);
        int master = -1, on = 1;
        rebuild->terminal[p] = -1;
        struct bunshin_error *error = open_pair(pty, &master, &rebuild->terminal[p]);
        if (!error)
            error = fill_pair(rebuild, pty, master, rebuild->terminal[p]);
        if (!error)
            error = place_pair(rebuild, p, &master);
        if (!error && pty->exclusive && ioctl(rebuild->terminal[p], TIOCEXCL, 0) != 0)
            error = bunshin_error_os("cannot make pty %d exclusive", pty->index);
        if (!error && pty->locked && master < 0)
            for (int32_t i = 0; i < (int32_t)image->table[TABLE_DESCRIPTION].count; i++)
                if (IMAGE_DESCRIPTION(image, i)->kind == KIND_PTY_MASTER && IMAGE_DESCRIPTION(image, i)->object == p)
                    (void)ioctl(rebuild_fd(rebuild, i), TIOCSPTLCK, &on);
        if (master >= 0)
            close(master); /* nobody's: with it gone, the other side is hung up, as it was */
        TRY(error);
    }
    return NULL;
}

void pty_rebuild_done(struct rebuild *rebuild) {
    for (int32_t p = 0; rebuild->terminal && p < (int32_t)rebuild->image->table[TABLE_PTY].count; p++)
        if (rebuild->terminal[p] >= 0)
            close(rebuild->terminal[p]);
    free(rebuild->terminal);
    rebuild->terminal = NULL;
}

/* In a session leader's stub: its terminal controls it again. */
int pty_take_control(struct rebuild *rebuild, const struct image_process *process) {
    if (process->terminal == IMAGE_NONE || process->session != process->pid)
        return 0;
    return ioctl(rebuild->terminal[process->terminal], TIOCSCTTY, 0) ? errno : 0;
}

/* In any stub of the session, once its groups are there. */
int pty_set_foreground(struct rebuild *rebuild, const struct image_process *process) {
    if (process->terminal == IMAGE_NONE || process->session != process->pid || process->terminal_group <= 0)
        return 0;
    int group = process->terminal_group;
    return ioctl(rebuild->terminal[process->terminal], TIOCSPGRP, &group) ? errno : 0;
}
