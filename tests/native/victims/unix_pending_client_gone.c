/* Clients that connected, wrote, and were closed or had ended before anybody accepted them: what they left is all there. */
#include "letters.h"
#include <poll.h>

static const struct {
    int type;
    const char *name;
} kinds[] = {{SOCK_STREAM, "@victim gone"}, {SOCK_SEQPACKET, "/tmp/victim-gone"}};

int main(void) {
    int listener[2], nameless = (int)must(memfd_create("left", 0));
    pid_t ended[2];
    must(write(nameless, "left behind", 11));
    for (int k = 0; k < 2; k++) {
        listener[k] = bound(kinds[k].type, kinds[k].name);
        must(listen(listener[k], 5));
        int fd = dialled(kinds[k].type, kinds[k].name);
        must(write(fd, "closed", 6));
        close(fd);
        if ((ended[k] = (pid_t)must(fork())) == 0) {
            post(dialled(kinds[k].type, kinds[k].name), "ended", &nameless, 1);
            _exit(0);
        }
        must(waitpid(ended[k], NULL, 0));
        close(dialled(kinds[k].type, kinds[k].name));
        fd = (int)must(socket(AF_UNIX, kinds[k].type, 0));
        struct sockaddr_un name;
        char words[32];
        snprintf(words, sizeof words, "@victim's gone client %d", k);
        socklen_t length = name_of(&name, words);
        must(bind(fd, (struct sockaddr *)&name, length));
        must(dial(fd, kinds[k].name));
        must(write(fd, "named", 5));
        close(fd);
    }
    close(nameless);
    ready();
    go();
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 4; i++) {
            struct sockaddr_un name = {0};
            socklen_t length = sizeof name;
            struct pollfd state = {.fd = listener[k], .events = POLLIN};
            expect(poll(&state, 1, 5000) == 1, "client %d of kind %d is not there", i, k);
            int end = (int)must(accept(listener[k], (struct sockaddr *)&name, &length));
            struct ucred peer;
            char text[64] = "";
            if (i == 3)
                expect(!memcmp(name.sun_path + 1, "victim's gone client", 20), "its name is %s", name.sun_path + 1);
            else
                expect(length <= sizeof name.sun_family, "client %d has a name", i);
            length = sizeof peer;
            must(getsockopt(end, SOL_SOCKET, SO_PEERCRED, &peer, &length));
            expect(peer.pid == (i == 1 ? ended[k] : getpid()), "client %d is pid %d", i, peer.pid);
            if (i == 0)
                expect_text(end, "closed");
            if (i == 1) {
                int passed = fetch_one(end, "ended");
                expect(pread(passed, text, sizeof text - 1, 0) == 11 && !strcmp(text, "left behind"), "the file says %s", text);
            }
            if (i == 3)
                expect_text(end, "named");
            expect(recv(end, text, sizeof text, MSG_DONTWAIT) == 0, "client %d has not gone", i);
            expect(send(end, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE, "client %d can be written to", i);
        }
    ok();
}
