// Goroutines in a ring of channels, sleepers, a ticker, garbage, a child process, and a server that is its own client.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"os/exec"
	"runtime"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const members, hops = 100, 40000

type shared struct {
	sync.Mutex
	owns []string
}

var (
	ticks, slept, asked, served, wrong, unsorted, collected int64
	ring                                                  = make(chan int64, 1)
	all                                                   sync.WaitGroup
	owns                                                  shared
)

func runRing() {
	channels := make([]chan [2]int64, members)
	for i := range channels {
		channels[i] = make(chan [2]int64)
	}
	for i := range channels {
		go func(i int) {
			for token := range channels[i] {
				token[0]++
				token[1] += token[0] * int64(i+1) % 1000
				if token[0] == hops {
					ring <- token[1]
					return
				}
				if token[0]%400 == 0 {
					time.Sleep(10 * time.Millisecond)
				}
				channels[(i+1)%members] <- token
			}
		}(i)
	}
	channels[0] <- [2]int64{}
}

func sorter(seed int64) {
	defer all.Done()
	source := rand.New(rand.NewSource(seed))
	for round := 0; round < 60; round++ {
		numbers := make([]int, 20000)
		for i := range numbers {
			numbers[i] = source.Int()
		}
		sort.Ints(numbers)
		if !sort.IntsAreSorted(numbers) {
			atomic.AddInt64(&unsorted, 1)
		}
		if round%10 == 0 {
			runtime.GC()
			atomic.AddInt64(&collected, 1)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func main() {
	child := exec.Command("/bin/sh", "-c", `while read line; do echo "echo $line"; done`)
	in, _ := child.StdinPipe()
	pipe, _ := child.StdoutPipe()
	out := bufio.NewReader(pipe)
	if err := child.Start(); err != nil {
		panic(err)
	}
	var talk sync.Mutex

	http.HandleFunc("/served", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, atomic.AddInt64(&served, 1))
	})
	http.HandleFunc("/child", func(w http.ResponseWriter, r *http.Request) {
		talk.Lock()
		defer talk.Unlock()
		fmt.Fprintln(in, r.FormValue("say"))
		line, _ := out.ReadString('\n')
		json.NewEncoder(w).Encode(line)
	})
	http.HandleFunc("/after", func(w http.ResponseWriter, r *http.Request) {
		ms, _ := strconv.Atoi(r.FormValue("ms"))
		begun := time.Now()
		select {
		case <-time.After(time.Duration(ms) * time.Millisecond):
		case <-r.Context().Done():
		}
		json.NewEncoder(w).Encode(time.Since(begun).Milliseconds())
	})
	http.HandleFunc("/own", func(w http.ResponseWriter, r *http.Request) {
		owns.Lock()
		defer owns.Unlock()
		owns.owns = append(owns.owns, r.FormValue("n"))
		json.NewEncoder(w).Encode(owns.owns)
	})
	http.HandleFunc("/far", func(w http.ResponseWriter, r *http.Request) {
		json.NewEncoder(w).Encode(atomic.LoadInt64(&ticks))
	})
	http.HandleFunc("/result", func(w http.ResponseWriter, r *http.Request) {
		sum := <-ring
		ring <- sum
		all.Wait()
		json.NewEncoder(w).Encode(map[string]int64{
			"ring": sum, "slept": atomic.LoadInt64(&slept), "unsorted": unsorted, "collected": collected, "wrong": wrong,
			"missed": atomic.LoadInt64(&asked) - atomic.LoadInt64(&served), "goroutines": int64(runtime.NumGoroutine()),
		})
	})
	go func() { panic(http.ListenAndServe("127.0.0.1:8090", nil)) }()
	go func() {
		for range time.Tick(10 * time.Millisecond) {
			atomic.AddInt64(&ticks, 1)
		}
	}()
	runRing()
	for i := 0; i < 1000; i++ {
		all.Add(1)
		go func(i int) {
			time.Sleep(time.Duration(i*2) * time.Millisecond)
			atomic.AddInt64(&slept, 1)
			all.Done()
		}(i)
	}
	all.Add(3)
	go sorter(1)
	go sorter(2)
	go func() { // a client that keeps its connection alive
		defer all.Done()
		for i := 0; i < 300; {
			answer, err := http.Get("http://127.0.0.1:8090/served")
			if err != nil {
				if atomic.LoadInt64(&asked) > 0 {
					atomic.AddInt64(&wrong, 1)
				}
				time.Sleep(5 * time.Millisecond)
				continue
			}
			body, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			if string(body) != strconv.Itoa(int(atomic.AddInt64(&asked, 1))) {
				atomic.AddInt64(&wrong, 1)
			}
			i++
			time.Sleep(4 * time.Millisecond)
		}
	}()
	select {}
}
