/*
 * Sessions: a bash and a python that live as long as the workspace. A call reaches its session as one short line through a
 * pipe; the command lies in a file, output and status come back through FIFOs of that call alone, so that what a
 * background job writes later can never be taken for another call's output.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "digest/digest.h"
#include "init/init.h"

#include "init/drivers.h"

static struct bunshin_error *write_file(const char *path, const void *data, size_t size) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return bunshin_error_os("cannot write %s", path);
    struct bunshin_error *error = NULL;
    for (size_t done = 0; !error && done < size;) {
        ssize_t put = write(fd, (const char *)data + done, size - done);
        if (put < 0)
            error = bunshin_error_os("cannot write %s", path);
        else
            done += (size_t)put;
    }
    close(fd);
    return error;
}

struct bunshin_error *session_prepare(struct init *init) {
    for (int kind = CALL_SHELL; kind <= CALL_PYTHON; kind++) {
        struct session *session = &init->session[kind];
        *session = (struct session){.kind = (enum call_kind)kind, .command = -1, .terminal = -1};
        if (!(session->cwd = strdup(init->settings.cwd)))
            return bunshin_error_no_memory();
    }
    TRY(frozen_prepare(init));
    TRY(write_file(INIT_PRIVATE "/bash", shell_driver, sizeof shell_driver - 1));
    return write_file(INIT_PRIVATE "/python", python_driver, sizeof python_driver - 1);
}

/*
 * bash wants a terminal to restore after a child was killed, and complains on the caller's stderr where there is none. It
 * gets one as its own standard error, but not as controlling terminal: programs find no /dev/tty to wait for.
 */
static struct bunshin_error *open_terminal(int *ret_master, int *ret_slave) {
    int master = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (master < 0)
        return bunshin_error_os("cannot open a terminal for the shell");
    int unlock = 0;
    int slave = -1;
    if (ioctl(master, TIOCSPTLCK, &unlock) == 0)
        slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave < 0) {
        struct bunshin_error *error = bunshin_error_os("cannot open a terminal for the shell");
        close(master);
        return error;
    }
    *ret_master = master;
    *ret_slave = slave;
    return NULL;
}

void session_terminal_readable(struct session *session) {
    char waste[4096]; /* prompts and notices of an idle shell: nobody's output */
    while (read(session->terminal, waste, sizeof waste) > 0)
        ;
}

static void session_close(struct session *session) {
    if (session->command >= 0)
        close(session->command);
    if (session->terminal >= 0)
        close(session->terminal);
    session->command = session->terminal = -1;
    session->pid = 0;
}

static struct bunshin_error *send_line(struct session *session, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static struct bunshin_error *send_line(struct session *session, const char *format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (write(session->command, line, (size_t)length) != length)
        return bunshin_error_os("cannot send a line to the session");
    return NULL;
}

struct bunshin_error *session_ensure(struct init *init, enum call_kind kind) {
    struct session *session = &init->session[kind];
    if (session->pid)
        return NULL;
    bool shell = kind == CALL_SHELL;
    int line[2], terminal = -1, slave = -1, null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        return bunshin_error_os("cannot open /dev/null");
    if (pipe2(line, O_CLOEXEC) != 0) {
        close(null);
        return bunshin_error_os("cannot start a session: pipe");
    }
    struct bunshin_error *error = shell ? open_terminal(&terminal, &slave) : NULL;
    static const char *const shell_argv[] = {"bash", "--noprofile", "--rcfile", INIT_PRIVATE "/bash", "--noediting", "-i", NULL};
    static const char *const python_argv[] = {"python3", "-u", INIT_PRIVATE "/python", NULL};
    struct start start = {.argv = shell ? shell_argv : python_argv,
                          .environment = (const char *const *)init->settings.environment,
                          .cwd = session->cwd,
                          .fd = {line[0], null, shell ? slave : null},
                          .new_session = true};
    bool missing = false;
    pid_t pid = 0;
    if (!error)
        error = start_process(init, &start, &pid, &missing);
    close(line[0]);
    close(null);
    if (slave >= 0)
        close(slave);
    if (error) {
        close(line[1]);
        if (terminal >= 0)
            close(terminal);
        return error;
    }
    session->pid = pid;
    memset(&session->state, 0, sizeof session->state);
    session->command = line[1];
    session->terminal = terminal;
    if (missing)
        snprintf(session->lost_notice + strlen(session->lost_notice), sizeof session->lost_notice - strlen(session->lost_notice),
                 "%sthe directory %.100s is gone; the session is in %.60s", *session->lost_notice ? "; " : "", session->cwd,
                 init->settings.cwd);
    error = terminal >= 0 ? init_watch(init, terminal) : NULL;
    if (!error && shell && session->exports.size) { /* what a shell that ended had exported */
        error = write_file(INIT_PRIVATE "/exports", session->exports.data, session->exports.size);
        if (!error)
            error = send_line(session, "builtin source " INIT_PRIVATE "/exports 2>/dev/null\n");
    }
    return error;
}

/* For tools to write: only pid 1 can make one there. */
static struct bunshin_error *empty_file(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0622);
    bool made = fd >= 0 && fchmod(fd, 0622) == 0;
    if (fd >= 0)
        close(fd);
    return made ? NULL : bunshin_error_os("cannot make %s", path);
}

/* What the shell is to say at the end of a call: all of its state costs it as much again as the rest. */
static const char *end_of_call(const struct init *init) { return init->digests ? SHELL_REPORT : SHELL_END; }

/* One name a session and stream, made anew for each call: a background job keeps the old one, which has no name now. */
static struct bunshin_error *make_fifo(struct init *init, const struct session *session, struct call *call, enum stream stream) {
    char path[64];
    session_path(session->kind, stream, path, sizeof path);
    unlink(path);
    if (mkfifo(path, 0622) != 0)
        return bunshin_error_os("cannot make a FIFO for a call");
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return bunshin_error_os("cannot open a FIFO for a call");
    (void)fcntl(fd, F_SETPIPE_SZ, 1 << 18);
    call->stream[stream] = fd;
    /* The first writer of a FIFO wakes its reader when it opens it, before it has written anything, and epoll would list the
     * streams in that order. With a writer there already, the order is that of the first bytes. */
    if (stream <= STREAM_STDERR && (call->writer[stream] = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC)) < 0)
        return bunshin_error_os("cannot open a FIFO for a call");
    return init_watch(init, fd);
}

/* One FIFO under both names: what goes to either arrives in the order it was written. */
static struct bunshin_error *share_fifo(const struct session *session) {
    char from[64], to[64];
    session_path(session->kind, STREAM_STDOUT, from, sizeof from);
    session_path(session->kind, STREAM_STDERR, to, sizeof to);
    unlink(to);
    return link(from, to) ? bunshin_error_os("cannot make a FIFO for a call") : NULL;
}

void session_path(enum call_kind kind, enum stream stream, char *ret, size_t size) {
    static const char *const names[] = {"stdout", "stderr", "status", "command"};
    snprintf(ret, size, INIT_PRIVATE "/%s.%s", kind == CALL_SHELL ? "shell" : "python", names[stream]);
}

/* Programs in a directory that was removed fail without a word of why, and the shell would stay there for good. */
static struct bunshin_error *leave_removed_directory(struct init *init, struct session *session, struct call *call) {
    static const char mark[] = " (deleted)";
    char link[32], cwd[4200];
    snprintf(link, sizeof link, "%d/cwd", session->pid);
    ssize_t length = readlinkat(init->proc, link, cwd, sizeof cwd - 1);
    if (length < (ssize_t)sizeof mark)
        return NULL;
    cwd[length] = '\0';
    char *end = cwd + length - (sizeof mark - 1);
    if (strcmp(end, mark) || access(cwd, F_OK) == 0)
        return NULL;
    *end = '\0';
    size_t used = strlen(call->notice);
    snprintf(call->notice + used, sizeof call->notice - used,
             "%sthe directory %.100s was removed; the shell is in the nearest one that is left", used ? "; " : "", cwd);
    return send_line(session, "__bunshin_leave $?\n");
}

struct bunshin_error *session_send(struct init *init, struct session *session, struct call *call, const char *text) {
    char path[64];
    session_path(session->kind, STREAM_COUNT, path, sizeof path);
    TRY(write_file(path, text, strlen(text)));
    TRY(make_fifo(init, session, call, STREAM_STDOUT));
    TRY(call->merged ? share_fifo(session) : make_fifo(init, session, call, STREAM_STDERR));
    TRY(make_fifo(init, session, call, STREAM_STATUS));
    session->running = call;
    call->pid = session->pid;
    halt_wake(init, session);
    if (*session->lost_notice) {
        snprintf(call->notice, sizeof call->notice, "%s", session->lost_notice);
        session->lost_notice[0] = '\0';
    }
    if (session->kind == CALL_PYTHON)
        return send_line(session, "%llu\n", (unsigned long long)call->id);
    TRY(leave_removed_directory(init, session, call));
    if (init->digests)
        TRY(empty_file(INIT_PRIVATE "/shell.traps"));
    return send_line(session, "builtin source " INIT_PRIVATE "/shell.command </dev/null >" INIT_PRIVATE "/shell.stdout 2>%s; %s",
                     call->merged ? "&1" : INIT_PRIVATE "/shell.stderr", end_of_call(init));
}

/* The driver's report: call NUL status NUL directory NUL [exported variables]. */
void session_report(struct session *session, struct call *call) {
    const char *data = (const char *)call->status.data;
    size_t size = call->status.size;
    const char *name_end = size ? memchr(data, 0, size) : NULL;
    if (!name_end)
        return;
    size -= (size_t)(name_end + 1 - data);
    data = name_end + 1;
    const char *first = size ? memchr(data, 0, size) : NULL;
    const char *second = first ? memchr(first + 1, 0, size - (size_t)(first + 1 - data)) : NULL;
    if (!second)
        return;
    session->last_status = atoi(data);
    call->exit_status = session->last_status;
    if (first[1]) {
        char *cwd = strdup(first + 1);
        if (cwd) {
            free(session->cwd);
            session->cwd = cwd;
        }
    }
    size_t exports = size - (size_t)(second + 1 - data);
    const char *state = memchr(second + 1, 0, exports);
    session->state.known = false;
    if (state) {
        shell_report(session, state + 1, exports - (size_t)(state + 1 - (second + 1)));
        exports = (size_t)(state - (second + 1));
    }
    session->exports.size = 0;
    bunshin_error_destroy(buffer_append(&session->exports, second + 1, exports));
}

#define ASK_NS 5000000000ll

struct bunshin_error *session_ask(struct init *init, struct session *session) {
    struct call asked = {.kind = session->kind, .stream = {-1, -1, -1}, .writer = {-1, -1}};
    TRY(make_fifo(init, session, &asked, STREAM_STATUS));
    TRY(empty_file(INIT_PRIVATE "/shell.traps"));
    halt_wake(init, session);
    struct bunshin_error *error = send_line(session, SHELL_REPORT);
    int fd = asked.stream[STREAM_STATUS];
    for (int64_t end = init_now() + ASK_NS; !error && init_now() < end;) {
        struct pollfd state = {.fd = fd, .events = POLLIN};
        char chunk[4096];
        ssize_t got = poll(&state, 1, 100) > 0 ? read(fd, chunk, sizeof chunk) : -1;
        if (got == 0 && asked.status.size)
            break;
        if (got > 0)
            error = buffer_append(&asked.status, chunk, (size_t)got);
    }
    halt_again(init, session);
    close(fd);
    char path[64];
    session_path(session->kind, STREAM_STATUS, path, sizeof path);
    unlink(path);
    if (!error)
        session_report(session, &asked);
    buffer_deinit(&asked.status);
    return error;
}

void session_exited(struct init *init, struct session *session, int status) {
    struct call *call = session->running;
    const char *name = session->kind == CALL_SHELL ? "shell" : "interpreter";
    session_close(session);
    if (!call || call->state == CALL_DONE) {
        snprintf(session->lost_notice, sizeof session->lost_notice, "the %s had ended; a fresh one has the same directory%s", name,
                 session->kind == CALL_SHELL ? " and exported variables" : ", without the old one's state");
        return;
    }
    call->exited = true;
    bunshin_error_destroy(call_drain(init, call));
    session_report(session, call);
    call->exit_status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (call->reason_override < 0)
        call->reason_override = BUNSHIN_SHELL_EXITED;
    if (call->reason_override < 0 || call->reason_override == BUNSHIN_TIMEOUT || call->reason_override == BUNSHIN_SHELL_EXITED)
        call->notice[0] = '\0'; /* it says that the session is kept */
    size_t used = strlen(call->notice);
    snprintf(call->notice + used, sizeof call->notice - used, "%sthe %s %s; a fresh one has the same directory%s", used ? "; " : "", name,
             WIFSIGNALED(status) ? "was killed" : "exited",
             session->kind == CALL_SHELL ? " and exported variables" : ", without the old one's state");
    call_finish(init, call);
}

void session_interrupt(struct init *init, struct session *session, struct call *call) {
    bool kept = true;
    if (session->kind == CALL_SHELL) {
        kept = interrupt_shell(init, session->pid, call->mark);
        if (kept) /* the rest of the call's line was given up too: ask for the report anew */
            bunshin_error_destroy(send_line(session, "%s", end_of_call(init)));
    } else {
        kill_call_tree(init, session->pid, call->mark);
        kill(session->pid, SIGINT);
    }
    if (!kept)
        kill(session->pid, SIGKILL);
}
