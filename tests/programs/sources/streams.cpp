// Streams, containers and threads under a sanitizer; at the end a mistake that the sanitizer must still find.
#include <atomic>
#include <iostream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

static std::map<std::string, long> table;
static std::mutex lock;
static std::atomic<long> steps{0}, goal{0};
static std::atomic<bool> ending{false};
static long unguarded;

static void work() {
    std::vector<std::string> kept;
    while (!ending) {
        if (goal == 0) {
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
            std::lock_guard<std::mutex> guard(lock);
            table["idle"] += 0;
            continue;
        }
        if (goal.fetch_sub(1) <= 0) {
            goal = 0;
            continue;
        }
        kept.push_back(std::string(50, 'x'));
        if (kept.size() > 100)
            kept.clear();
        std::lock_guard<std::mutex> guard(lock);
        ++table["steps"];
        ++steps;
    }
}

int main() {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back(work);
    std::string line;
    while (std::getline(std::cin, line)) {
        std::istringstream words(line);
        std::string verb, name;
        long value = 0;
        words >> verb >> name >> value;
        if (verb == "add") {
            std::lock_guard<std::mutex> guard(lock);
            table[name] = value;
            std::cout << name << " = " << value << std::endl;
        } else if (verb == "sum") {
            long sum = 0;
            std::lock_guard<std::mutex> guard(lock);
            for (auto &entry : table)
                sum += entry.second;
            std::cout << "sum " << sum << std::endl;
        } else if (verb == "work") {
            for (int i = 0; i < 80; i++) { // a thousand at a time, so that no step is lost to the race at zero
                long before = steps;
                goal = 1000;
                while (steps < before + 1000)
                    std::this_thread::yield();
                while (goal != 0)
                    std::this_thread::yield();
            }
            std::cout << "worked " << steps << std::endl;
        } else if (verb == "overflow") {
            volatile size_t at = 10;
            char *piece = new char[10];
            piece[at] = 1;
            delete[] piece;
        } else if (verb == "race") {
            std::thread one([] { unguarded++; }), other([] { unguarded++; });
            one.join();
            other.join();
        } else if (verb == "shift") {
            volatile int by = 40, one = 1;
            std::cout << (one << by) << std::endl;
        } else if (verb == "quit")
            break;
    }
    ending = true;
    for (auto &thread : threads)
        thread.join();
}
