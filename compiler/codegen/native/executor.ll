; The native executor: runs sequences of kernels, and shares the units of a kernel among threads.
;
; A sequence is a record of i64, which @run reads:
;   0 address of its commands   1 their number   2 most threads; 1 if no command may be shared
;   3 address of the pool       4 address of an array for clock readings, or 0
; A command is a record of i64:
;   0 address of the kernel     1 address of its arguments   2 its units, at least 1
;   3 sharing: 0 runs on the calling thread, 1 is shared with the workers that are awake,
;     2 wakes all workers first
;
; To share a command is a *step*. Its units are divided into at most 4096 grains of 2^shift units,
; and each thread starts with a range of them. It claims half of what its range still has, until it
; is empty, then half of the ranges of others: large pieces first, single grains at the end. A range
; is one word that holds the number of the step: epoch << 32 | next grain << 16 | last grain. A late
; worker cannot disturb a later step, since its claim (a compare-and-swap) expects the old epoch. The
; caller needs no worker: it claims all that the others leave, and waits only for claimed grains.
;
; On a busy machine a worker may lose its core while it holds a claim, and the caller waits for
; milliseconds. Sharing must pay for such stalls: each step without one earns a quarter of its time
; for each worker, up to a limit. A stall that takes more than was earned is followed by a pause in
; which nothing is shared, 32 times as long for one worker and shorter for more, so that threads cost
; a few percent at most.
;
; The pool, in bytes; what different threads write lies in different cache lines:
;   0 epoch (its low half is a futex)     128 callers in @run       136 whether one has the pool
;   144 clock ticks earned                152 clock until which nothing is shared
;   256 kernel   264 arguments   272 units   280 shift   288 threads   296 the caller's CPU, of this step
;   384 finished grains (a futex)         388 whether the caller sleeps on it
;   512 workers that sleep                520 whether workers must return
;   640 workers that were started         648 clock ticks that a worker waits before it sleeps
;   656 ticks that the caller waits before it sleeps    688 most ticks that are earned
;   664 address of `syscall`, or 0        672 its number of futex     680 address of `usleep`
;   696 address of `sched_getcpu`, or 0   704 and 712 those of `sched_getaffinity`, `sched_setaffinity`
;   720 ticks of waiting that are no stall
;   1024 + 128 * thread: the range of each thread
;
; The scheduler may wake a worker on the caller's core, where both would take turns. The worker then
; moves to another one.
;
; Waiting is by futex where there is one, otherwise by short naps.

; Divides the grains of a step among the threads, wakes workers if asked to, takes part, and waits
; until all grains are finished.
define internal void @share(ptr %pool, ptr %kernel, ptr %arguments, i64 %units, i64 %sharing, i64 %threads) nounwind noinline optnone {
entry:
  %start = call i64 @ticks()
  %epoch.old = load i64, ptr %pool, align 8
  %epoch.next = add i64 %epoch.old, 1
  %epoch = and i64 %epoch.next, 4294967295
  ; shift = bits of (units - 1) above 12
  %units.last = sub i64 %units, 1
  %zeros = call i64 @llvm.ctlz.i64(i64 %units.last, i1 false)
  %bits = sub i64 64, %zeros
  %large = icmp ugt i64 %bits, 12
  %excess = sub i64 %bits, 12
  %shift = select i1 %large, i64 %excess, i64 0
  %grain = shl i64 1, %shift
  %grain.last = sub i64 %grain, 1
  %rounded = add i64 %units, %grain.last
  %grains = lshr i64 %rounded, %shift

  %p.kernel = getelementptr i8, ptr %pool, i64 256
  %p.arguments = getelementptr i8, ptr %pool, i64 264
  %p.units = getelementptr i8, ptr %pool, i64 272
  %p.shift = getelementptr i8, ptr %pool, i64 280
  %p.threads = getelementptr i8, ptr %pool, i64 288
  %p.finished = getelementptr i8, ptr %pool, i64 384
  store atomic ptr %kernel, ptr %p.kernel monotonic, align 8
  store atomic ptr %arguments, ptr %p.arguments monotonic, align 8
  store atomic i64 %units, ptr %p.units monotonic, align 8
  store atomic i64 %shift, ptr %p.shift monotonic, align 8
  store atomic i64 %threads, ptr %p.threads monotonic, align 8
  %p.cpu = getelementptr i8, ptr %pool, i64 296
  %cpu = call i32 @current_cpu(ptr %pool, i32 -1)
  store atomic i32 %cpu, ptr %p.cpu monotonic, align 4
  store atomic i32 0, ptr %p.finished monotonic, align 4
  %tag = shl i64 %epoch, 32
  %ranges = getelementptr i8, ptr %pool, i64 1024
  br label %divide

divide:
  %thread = phi i64 [0, %entry], [%thread.next, %divide]
  %first = phi i64 [0, %entry], [%last, %divide]
  %thread.next = add i64 %thread, 1
  %scaled = mul i64 %grains, %thread.next
  %last = udiv i64 %scaled, %threads
  %first.high = shl i64 %first, 16
  %bounds = or i64 %first.high, %last
  %range = or i64 %tag, %bounds
  %line = shl i64 %thread, 7
  %p.range = getelementptr i8, ptr %ranges, i64 %line
  store atomic i64 %range, ptr %p.range release, align 8
  %more = icmp ult i64 %thread.next, %threads
  br i1 %more, label %divide, label %publish

publish:
  store atomic i64 %epoch, ptr %pool seq_cst, align 8
  %wakes = icmp eq i64 %sharing, 2
  br i1 %wakes, label %look, label %work

look:
  %p.sleepers = getelementptr i8, ptr %pool, i64 512
  %sleepers = load atomic i64, ptr %p.sleepers seq_cst, align 8
  %some = icmp ne i64 %sleepers, 0
  br i1 %some, label %rouse, label %work

rouse:
  %woken = atomicrmw xchg ptr %p.sleepers, i64 0 seq_cst, align 8
  call void @wake(ptr %pool, ptr %pool, i32 2147483647)
  br label %work

work:
  %mine = call i32 @participate(ptr %pool, i64 0, i64 %epoch, ptr %kernel, ptr %arguments, i64 %units, i64 %shift, i64 %threads)
  %grains.low = trunc i64 %grains to i32
  %theirs = sub i32 %grains.low, %mine
  %ran = call i64 @ticks()
  %done = load atomic i32, ptr %p.finished acquire, align 4
  %ready = icmp eq i32 %done, %theirs
  br i1 %ready, label %end, label %wait

wait:
  call void @wait_for_others(ptr %pool, i32 %theirs)
  br label %end

end:
  %finished = call i64 @ticks()
  %worked = sub i64 %ran, %start
  %waited = sub i64 %finished, %ran
  %mine.wide = zext i32 %mine to i64
  %divisor = call i64 @llvm.umax.i64(i64 %mine.wide, i64 1)
  %each = udiv i64 %worked, %divisor
  %workers = sub i64 %threads, 1
  call void @settle(ptr %pool, i64 %workers, i64 %worked, i64 %each, i64 %waited, i64 %finished)
  ret void
}

; Accounts for the time that the caller worked in a step, in total and for each grain, and waited. To
; wait for two grains, and a little, is no stall.
define internal void @settle(ptr %pool, i64 %workers, i64 %worked, i64 %each, i64 %waited, i64 %now) nounwind noinline optnone {
entry:
  %p.earned = getelementptr i8, ptr %pool, i64 144
  %p.alone = getelementptr i8, ptr %pool, i64 152
  %p.most = getelementptr i8, ptr %pool, i64 688
  %p.slack = getelementptr i8, ptr %pool, i64 720
  %earned = load i64, ptr %p.earned, align 8
  %slack = load i64, ptr %p.slack, align 8
  %two = shl i64 %each, 1
  %usual = add i64 %two, %slack
  %stall = call i64 @llvm.usub.sat.i64(i64 %waited, i64 %usual)
  %none = icmp eq i64 %stall, 0
  br i1 %none, label %gain, label %pay

gain:
  %most = load i64, ptr %p.most, align 8
  %quarter = lshr i64 %worked, 2
  %gained = mul i64 %quarter, %workers
  %sum = add i64 %earned, %gained
  %capped = call i64 @llvm.umin.i64(i64 %sum, i64 %most)
  store i64 %capped, ptr %p.earned, align 8
  ret void

pay:
  %left = call i64 @llvm.usub.sat.i64(i64 %earned, i64 %stall)
  store i64 %left, ptr %p.earned, align 8
  %debt = call i64 @llvm.usub.sat.i64(i64 %stall, i64 %earned)
  %debt.times = shl i64 %debt, 5
  %pause = udiv i64 %debt.times, %workers
  %until = add i64 %now, %pause
  store i64 %until, ptr %p.alone, align 8
  ret void
}

; Waits until the workers have finished `grains` grains: spins, then sleeps.
define internal void @wait_for_others(ptr %pool, i32 %grains) nounwind noinline optnone {
entry:
  %p.finished = getelementptr i8, ptr %pool, i64 384
  %p.sleeping = getelementptr i8, ptr %pool, i64 388
  %p.patience = getelementptr i8, ptr %pool, i64 656
  %patience = load i64, ptr %p.patience, align 8
  %start = call i64 @ticks()
  br label %spin

spin:
  %done = load atomic i32, ptr %p.finished acquire, align 4
  %ready = icmp eq i32 %done, %grains
  br i1 %ready, label %end, label %idle

idle:
  call void @relax()
  %now = call i64 @ticks()
  %waited = sub i64 %now, %start
  %long = icmp ugt i64 %waited, %patience
  br i1 %long, label %nap, label %spin

nap:
  store atomic i32 1, ptr %p.sleeping seq_cst, align 4
  br label %check

check:
  %found = load atomic i32, ptr %p.finished seq_cst, align 4
  %all = icmp eq i32 %found, %grains
  br i1 %all, label %rise, label %sleep

sleep:
  call void @sleep_on(ptr %pool, ptr %p.finished, i32 %found)
  br label %check

rise:
  store atomic i32 0, ptr %p.sleeping monotonic, align 4
  br label %end

end:
  ret void
}

; Claims and runs grains of a step until none are left; returns how many it ran.
define internal i32 @participate(ptr %pool, i64 %thread, i64 %epoch, ptr %kernel, ptr %arguments, i64 %units, i64 %shift, i64 %threads) nounwind noinline optnone {
entry:
  %ranges = getelementptr i8, ptr %pool, i64 1024
  br label %victim

victim:
  %nth = phi i64 [0, %entry], [%nth.next, %empty]
  %ran.before = phi i32 [0, %entry], [%ran, %empty]
  %sum = add i64 %thread, %nth
  %beyond = icmp uge i64 %sum, %threads
  %wrapped = sub i64 %sum, %threads
  %owner = select i1 %beyond, i64 %wrapped, i64 %sum
  %line = shl i64 %owner, 7
  %range = getelementptr i8, ptr %ranges, i64 %line
  br label %claim

claim:
  %ran = phi i32 [%ran.before, %victim], [%ran, %contended], [%ran.more, %run]
  %word = load atomic i64, ptr %range acquire, align 8
  %its.epoch = lshr i64 %word, 32
  %same = icmp eq i64 %its.epoch, %epoch
  %shifted = lshr i64 %word, 16
  %next = and i64 %shifted, 65535
  %last = and i64 %word, 65535
  %some = icmp ult i64 %next, %last
  %open = and i1 %same, %some
  br i1 %open, label %take, label %empty

take:
  %left = sub i64 %last, %next
  %left.up = add i64 %left, 1
  %count = lshr i64 %left.up, 1
  %step = shl i64 %count, 16
  %word.new = add i64 %word, %step
  %swap = cmpxchg ptr %range, i64 %word, i64 %word.new acq_rel monotonic, align 8
  %won = extractvalue { i64, i1 } %swap, 1
  br i1 %won, label %run, label %contended

contended:
  br label %claim

run:
  %until = add i64 %next, %count
  %first.unit = shl i64 %next, %shift
  %end.unit = shl i64 %until, %shift
  %end.unit.last = call i64 @llvm.umin.i64(i64 %end.unit, i64 %units)
  call void %kernel(ptr %arguments, i64 %first.unit, i64 %end.unit.last)
  %count.low = trunc i64 %count to i32
  %ran.more = add i32 %ran, %count.low
  br label %claim

empty:
  %nth.next = add i64 %nth, 1
  %others = icmp ult i64 %nth.next, %threads
  br i1 %others, label %victim, label %end

end:
  ret i32 %ran
}

; A worker: takes part in every step that it sees, until it must return.
define void @worker(ptr %pool, i64 %thread) nounwind noinline optnone {
entry:
  %mode = call i64 @flush_denormals()
  %p.stop = getelementptr i8, ptr %pool, i64 520
  %p.sleepers = getelementptr i8, ptr %pool, i64 512
  %p.patience = getelementptr i8, ptr %pool, i64 648
  %patience = load i64, ptr %p.patience, align 8
  %begin = call i64 @ticks()
  br label %look

look:
  %seen = phi i64 [-1, %entry], [%seen, %idle], [%seen, %woken], [%epoch, %joined]
  %start = phi i64 [%begin, %entry], [%start, %idle], [%rested, %woken], [%after, %joined]
  %epoch = load atomic i64, ptr %pool acquire, align 8
  %new = icmp ne i64 %epoch, %seen
  br i1 %new, label %join, label %stopping

stopping:
  %stop = load atomic i64, ptr %p.stop acquire, align 8
  %ends = icmp ne i64 %stop, 0
  br i1 %ends, label %end, label %idle

idle:
  call void @relax()
  %now = call i64 @ticks()
  %waited = sub i64 %now, %start
  %long = icmp ugt i64 %waited, %patience
  br i1 %long, label %doze, label %look

doze:
  %dozing = atomicrmw add ptr %p.sleepers, i64 1 seq_cst, align 8
  %again = load atomic i64, ptr %pool seq_cst, align 8
  %stop.again = load atomic i64, ptr %p.stop seq_cst, align 8
  %stays = icmp eq i64 %stop.again, 0
  %unchanged = icmp eq i64 %again, %seen
  %sleeps = and i1 %stays, %unchanged
  br i1 %sleeps, label %sleep, label %woken

sleep:
  %low = trunc i64 %seen to i32
  call void @sleep_on(ptr %pool, ptr %pool, i32 %low)
  br label %woken

woken:
  %rested = call i64 @ticks()
  br label %look

join:
  %p.kernel = getelementptr i8, ptr %pool, i64 256
  %p.arguments = getelementptr i8, ptr %pool, i64 264
  %p.units = getelementptr i8, ptr %pool, i64 272
  %p.shift = getelementptr i8, ptr %pool, i64 280
  %p.threads = getelementptr i8, ptr %pool, i64 288
  %kernel = load atomic ptr, ptr %p.kernel monotonic, align 8
  %arguments = load atomic ptr, ptr %p.arguments monotonic, align 8
  %units = load atomic i64, ptr %p.units monotonic, align 8
  %shift = load atomic i64, ptr %p.shift monotonic, align 8
  %threads = load atomic i64, ptr %p.threads monotonic, align 8
  %invited = icmp ult i64 %thread, %threads
  br i1 %invited, label %place, label %joined

place:
  %p.cpu = getelementptr i8, ptr %pool, i64 296
  %its.cpu = load atomic i32, ptr %p.cpu monotonic, align 4
  %cpu = call i32 @current_cpu(ptr %pool, i32 -2)
  %same = icmp eq i32 %cpu, %its.cpu
  br i1 %same, label %move, label %work

move:
  call void @leave_cpu(ptr %pool, i32 %cpu)
  br label %work

work:
  %ran = call i32 @participate(ptr %pool, i64 %thread, i64 %epoch, ptr %kernel, ptr %arguments, i64 %units, i64 %shift, i64 %threads)
  %some = icmp ne i32 %ran, 0
  br i1 %some, label %report, label %joined

report:
  %p.finished = getelementptr i8, ptr %pool, i64 384
  %p.sleeping = getelementptr i8, ptr %pool, i64 388
  %finished = atomicrmw add ptr %p.finished, i32 %ran seq_cst, align 4
  %sleeping = load atomic i32, ptr %p.sleeping seq_cst, align 4
  %asleep = icmp ne i32 %sleeping, 0
  br i1 %asleep, label %rouse, label %joined

rouse:
  call void @wake(ptr %pool, ptr %p.finished, i32 1)
  br label %joined

joined:
  %after = call i64 @ticks()
  br label %look

end:
  call void @restore_floats(i64 %mode)
  ret void
}

; Returns the CPU that this thread runs on, or `unknown`.
define internal i32 @current_cpu(ptr %pool, i32 %unknown) nounwind noinline optnone {
entry:
  %p.function = getelementptr i8, ptr %pool, i64 696
  %function = load ptr, ptr %p.function, align 8
  %has = icmp ne ptr %function, null
  br i1 %has, label %ask, label %end

ask:
  %cpu = call i32 %function()
  ret i32 %cpu

end:
  ret i32 %unknown
}

; Moves this thread to another of its CPUs: excludes the one it is on, then allows it again.
define internal void @leave_cpu(ptr %pool, i32 %cpu) nounwind noinline optnone {
entry:
  %mask = alloca [128 x i8], align 8
  %p.get = getelementptr i8, ptr %pool, i64 704
  %p.set = getelementptr i8, ptr %pool, i64 712
  %get = load ptr, ptr %p.get, align 8
  %set = load ptr, ptr %p.set, align 8
  %failed = call i32 %get(i32 0, i64 128, ptr %mask)
  %known = icmp eq i32 %failed, 0
  %inside = icmp ult i32 %cpu, 1024
  %both = and i1 %known, %inside
  br i1 %both, label %move, label %end

move:
  %byte = lshr i32 %cpu, 3
  %bit = and i32 %cpu, 7
  %one = shl i32 1, %bit
  %one.byte = trunc i32 %one to i8
  %p.byte = getelementptr i8, ptr %mask, i32 %byte
  %old = load i8, ptr %p.byte, align 1
  %new = xor i8 %old, %one.byte
  store i8 %new, ptr %p.byte, align 1
  %moved = call i32 %set(i32 0, i64 128, ptr %mask)
  store i8 %old, ptr %p.byte, align 1
  %allowed = call i32 %set(i32 0, i64 128, ptr %mask)
  ret void

end:
  ret void
}

; Sleeps while the word has the expected value: by futex, or for 200 microseconds without one.
define internal void @sleep_on(ptr %pool, ptr %word, i32 %expected) nounwind noinline optnone {
entry:
  %p.syscall = getelementptr i8, ptr %pool, i64 664
  %syscall = load ptr, ptr %p.syscall, align 8
  %has = icmp ne ptr %syscall, null
  br i1 %has, label %futex, label %nap

futex: ; 128 is FUTEX_WAIT | FUTEX_PRIVATE_FLAG
  %p.number = getelementptr i8, ptr %pool, i64 672
  %number = load i64, ptr %p.number, align 8
  %slept = call i64 (i64, ...) %syscall(i64 %number, ptr %word, i64 128, i32 %expected, ptr null, ptr null, i64 0)
  ret void

nap:
  %p.usleep = getelementptr i8, ptr %pool, i64 680
  %usleep = load ptr, ptr %p.usleep, align 8
  %napped = call i32 %usleep(i32 200)
  ret void
}

; Wakes up to `count` threads that sleep on a word.
define internal void @wake(ptr %pool, ptr %word, i32 %count) nounwind noinline optnone {
entry:
  %p.syscall = getelementptr i8, ptr %pool, i64 664
  %syscall = load ptr, ptr %p.syscall, align 8
  %has = icmp ne ptr %syscall, null
  br i1 %has, label %futex, label %end

futex: ; 129 is FUTEX_WAKE | FUTEX_PRIVATE_FLAG
  %p.number = getelementptr i8, ptr %pool, i64 672
  %number = load i64, ptr %p.number, align 8
  %woken = call i64 (i64, ...) %syscall(i64 %number, ptr %word, i64 129, i32 %count, ptr null, ptr null, i64 0)
  br label %end

end:
  ret void
}

; Tells all workers to return.
define void @stop(ptr %pool) nounwind noinline optnone {
entry:
  %p.stop = getelementptr i8, ptr %pool, i64 520
  store atomic i64 1, ptr %p.stop seq_cst, align 8
  call void @wake(ptr %pool, ptr %pool, i32 2147483647)
  ret void
}

; Runs the commands of a sequence in order, with denormals flushed to zero. Returns 1 if it would
; have shared commands but no worker was started yet, otherwise 0.
define i32 @run(ptr %sequence) nounwind noinline optnone {
entry:
  %mode = call i64 @flush_denormals()
  %commands = load ptr, ptr %sequence, align 8
  %p.count = getelementptr i8, ptr %sequence, i64 8
  %count = load i64, ptr %p.count, align 8
  %p.most = getelementptr i8, ptr %sequence, i64 16
  %most = load i64, ptr %p.most, align 8
  %p.stamps = getelementptr i8, ptr %sequence, i64 32
  %stamps = load ptr, ptr %p.stamps, align 8
  call void @stamp(ptr %stamps, i64 0)
  %several = icmp ugt i64 %most, 1
  br i1 %several, label %enter, label %alone

enter:
  %p.pool = getelementptr i8, ptr %sequence, i64 24
  %pool = load ptr, ptr %p.pool, align 8
  %p.started = getelementptr i8, ptr %pool, i64 640
  %started = load atomic i64, ptr %p.started acquire, align 8
  %none = icmp eq i64 %started, 0
  br i1 %none, label %alone, label %compete

compete:
  %p.callers = getelementptr i8, ptr %pool, i64 128
  %p.holder = getelementptr i8, ptr %pool, i64 136
  %callers.before = atomicrmw add ptr %p.callers, i64 1 acq_rel, align 8
  %held = atomicrmw xchg ptr %p.holder, i64 1 acquire, align 8
  %mine = icmp eq i64 %held, 0
  br i1 %mine, label %together, label %crowded

crowded:
  call void @run_alone(ptr %commands, i64 %count, ptr %stamps)
  %callers.crowded = atomicrmw sub ptr %p.callers, i64 1 acq_rel, align 8
  br label %end

together:
  %all = add i64 %started, 1
  %threads = call i64 @llvm.umin.i64(i64 %all, i64 %most)
  call void @run_together(ptr %commands, i64 %count, ptr %stamps, ptr %pool, i64 %threads)
  store atomic i64 0, ptr %p.holder release, align 8
  %callers.after = atomicrmw sub ptr %p.callers, i64 1 acq_rel, align 8
  br label %end

alone:
  %wanting = phi i32 [0, %entry], [1, %enter]
  call void @run_alone(ptr %commands, i64 %count, ptr %stamps)
  br label %end

end:
  %result = phi i32 [%wanting, %alone], [0, %together], [0, %crowded]
  call void @restore_floats(i64 %mode)
  ret i32 %result
}

; Runs commands on the calling thread.
define internal void @run_alone(ptr %commands, i64 %count, ptr %stamps) nounwind noinline optnone {
entry:
  %some = icmp ne i64 %count, 0
  br i1 %some, label %command, label %end

command:
  %place = phi i64 [0, %entry], [%place.next, %command]
  %offset = shl i64 %place, 5
  %record = getelementptr i8, ptr %commands, i64 %offset
  %p.arguments = getelementptr i8, ptr %record, i64 8
  %p.units = getelementptr i8, ptr %record, i64 16
  %kernel = load ptr, ptr %record, align 8
  %arguments = load ptr, ptr %p.arguments, align 8
  %units = load i64, ptr %p.units, align 8
  call void %kernel(ptr %arguments, i64 0, i64 %units)
  %place.next = add i64 %place, 1
  call void @stamp(ptr %stamps, i64 %place.next)
  %more = icmp ult i64 %place.next, %count
  br i1 %more, label %command, label %end

end:
  ret void
}

; Runs commands, sharing those that may be. Other callers have cores to themselves, too: each takes
; one thread away.
define internal void @run_together(ptr %commands, i64 %count, ptr %stamps, ptr %pool, i64 %threads) nounwind noinline optnone {
entry:
  %p.callers = getelementptr i8, ptr %pool, i64 128
  %p.alone = getelementptr i8, ptr %pool, i64 152
  %some = icmp ne i64 %count, 0
  br i1 %some, label %command, label %end

command:
  %place = phi i64 [0, %entry], [%place.next, %next]
  %offset = shl i64 %place, 5
  %record = getelementptr i8, ptr %commands, i64 %offset
  %p.arguments = getelementptr i8, ptr %record, i64 8
  %p.units = getelementptr i8, ptr %record, i64 16
  %p.sharing = getelementptr i8, ptr %record, i64 24
  %kernel = load ptr, ptr %record, align 8
  %arguments = load ptr, ptr %p.arguments, align 8
  %units = load i64, ptr %p.units, align 8
  %sharing = load i64, ptr %p.sharing, align 8
  %callers = load atomic i64, ptr %p.callers monotonic, align 8
  %others = sub i64 %callers, 1
  %free = call i64 @llvm.usub.sat.i64(i64 %threads, i64 %others)
  %use = call i64 @llvm.umin.i64(i64 %free, i64 %units)
  %several = icmp ugt i64 %use, 1
  %large = icmp ne i64 %sharing, 0
  %shared = and i1 %several, %large
  br i1 %shared, label %afford, label %alone

afford:
  %now = call i64 @ticks()
  %until = load i64, ptr %p.alone, align 8
  %over = sub i64 %now, %until
  %pays = icmp sge i64 %over, 0
  br i1 %pays, label %share, label %alone

share:
  call void @share(ptr %pool, ptr %kernel, ptr %arguments, i64 %units, i64 %sharing, i64 %use)
  br label %next

alone:
  call void %kernel(ptr %arguments, i64 0, i64 %units)
  br label %next

next:
  %place.next = add i64 %place, 1
  call void @stamp(ptr %stamps, i64 %place.next)
  %more = icmp ult i64 %place.next, %count
  br i1 %more, label %command, label %end

end:
  ret void
}

; Stores the clock in element `place` of an array, unless the array is null.
define internal void @stamp(ptr %stamps, i64 %place) nounwind noinline optnone {
entry:
  %none = icmp eq ptr %stamps, null
  br i1 %none, label %end, label %read

read:
  %now = call i64 @ticks()
  %element = getelementptr i64, ptr %stamps, i64 %place
  store i64 %now, ptr %element, align 8
  br label %end

end:
  ret void
}

; Returns the clock that the executor measures by.
define i64 @clock() nounwind noinline optnone {
entry:
  %now = call i64 @ticks()
  ret i64 %now
}

declare i64 @llvm.ctlz.i64(i64, i1)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.usub.sat.i64(i64, i64)
