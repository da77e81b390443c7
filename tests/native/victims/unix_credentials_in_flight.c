/* Credentials that wait with messages: of a parent, of a child, of one that has ended, and messages that have none. */
#include "letters.h"

static const struct {
    const char *text;
    int who; /* 0: not said, 1: the parent, 2: the child, 3: the one that ends */
} letters[] = {{"silent", 0}, {"parent", 1}, {"child", 2}, {"dead", 3}, {"dead again", 3}, {"explicit", 1}};

static void send_as(int pair[3][2], int who, const char *text, int channel) {
    struct ucred self = {getpid(), getuid(), getgid()};
    (void)who;
    must(post_to(pair[channel][0], text, strlen(text), NULL, 0, !strcmp(text, "explicit") ? &self : NULL, 0, NULL, 0));
}

int main(void) {
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    int pair[3][2], on = 1, gate[2];
    must(pipe(gate));
    for (int i = 0; i < 3; i++)
        must(socketpair(AF_UNIX, types[i], 0, pair[i]));
    pid_t pids[4] = {0, getpid(), 0, 0};
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++) {
        if (i == 1)
            for (int j = 0; j < 3; j++)
                must(setsockopt(pair[j][1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
        int who = letters[i].who;
        if (who <= 1) {
            for (int j = 0; j < 3; j++)
                send_as(pair, who, letters[i].text, j);
            continue;
        }
        if (!strcmp(letters[i].text, "dead again"))
            continue; /* sent by the same one */
        pids[who] = (pid_t)must(fork());
        if (pids[who] == 0) {
            for (int j = 0; j < 3; j++) {
                send_as(pair, who, letters[i].text, j);
                if (who == 3)
                    send_as(pair, who, "dead again", j);
            }
            if (who == 3)
                _exit(0);
            must(write(gate[1], "x", 1));
            for (;;)
                pause();
        }
        char text[1];
        if (who == 3)
            child_ends_well(pids[who]);
        else
            must(read(gate[0], text, 1));
    }
    ready();
    go();
    for (int j = 0; j < 3; j++) {
        for (size_t i = 0; i < sizeof letters / sizeof *letters; i++) {
            struct letter letter = fetch(pair[j][1]);
            const char *text = letters[i].text;
            char both[32];
            if (j == 0 && !strcmp(text, "dead")) { /* a stream glues what the same one sent */
                snprintf(both, sizeof both, "dead%s", "dead again");
                text = both;
                i++;
            }
            expect(letter.size == (ssize_t)strlen(text) && !strcmp(letter.text, text), "%d: read %s, not %s", j, letter.text, text);
            expect(letter.from.pid == pids[letters[i].who], "%d: %s is from pid %d, not %d", j, text, letter.from.pid, pids[letters[i].who]);
            if (letters[i].who)
                expect(letter.from.uid == getuid() && letter.from.gid == getgid(), "%d: %s is from uid %d", j, text, letter.from.uid);
        }
        expect(fetch(pair[j][1]).size == -1, "%d: there is more", j);
        send_as(pair, 1, "new", j);
        struct letter letter = fetch(pair[j][1]);
        expect(letter.from.pid == getpid(), "a new letter is from pid %d", letter.from.pid);
    }
    kill(pids[2], SIGKILL);
    ok();
}
