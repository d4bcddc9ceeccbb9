; Functions that compare accesses with bounds. They are copied into each kernel that checks bounds.
;
; Bounds are a record of 32 bytes: 0 start of the array, 8 its bytes, 16 the report, 24 the bounds
; of the kernel's arguments. Those of the arguments themselves are in front of the arguments, those
; of argument n are 32 * (n + 1) bytes further in front.
;
; The report has the first access out of bounds: 0 whether there is one, 8 the bounds, 16 those of
; the kernel's arguments, 24 the offset from the start, 32 the bytes of the access, 40 whether it is
; a store, 48 the bytes of the array. At 64 are 4096 bytes of zeros, which are loaded instead, and
; behind them as many which are written instead.
;
; With preserve_allcc the registers of the caller remain as they are, so that a check is cheap.

; Returns the pointer if `size` bytes behind it are in bounds, otherwise one to bytes of the report.
define internal preserve_allcc ptr @check_bounds(ptr %pointer, i64 %size, ptr %bounds, i64 %stores) noinline nounwind {
entry:
  %p.bytes = getelementptr i8, ptr %bounds, i64 8
  %start = load i64, ptr %bounds, align 8
  %bytes = load i64, ptr %p.bytes, align 8
  %address = ptrtoint ptr %pointer to i64
  %offset = sub i64 %address, %start
  %left = sub i64 %bytes, %offset
  %begins = icmp ule i64 %offset, %bytes
  %ends = icmp ule i64 %size, %left
  %inside = and i1 %begins, %ends
  br i1 %inside, label %good, label %bad

good:
  ret ptr %pointer

bad:
  %other = call preserve_allcc ptr @check_failed(ptr %bounds, i64 %offset, i64 %size, i64 %stores)
  ret ptr %other
}

; The same for contiguous lanes of `size` bytes, of which those in a mask of bits are accessed.
define internal preserve_allcc ptr @check_lanes(ptr %pointer, i64 %lanes, i64 %size, ptr %bounds, i64 %stores) noinline nounwind {
entry:
  %none = icmp eq i64 %lanes, 0
  br i1 %none, label %good, label %some

some:
  %first = call i64 @llvm.cttz.i64(i64 %lanes, i1 true)
  %above = call i64 @llvm.ctlz.i64(i64 %lanes, i1 true)
  %end = sub i64 64, %above
  %count = sub i64 %end, %first
  %begin = mul i64 %first, %size
  %length = mul i64 %count, %size
  %from = getelementptr i8, ptr %pointer, i64 %begin
  %found = call preserve_allcc ptr @check_bounds(ptr %from, i64 %length, ptr %bounds, i64 %stores)
  %inside = icmp eq ptr %found, %from
  br i1 %inside, label %good, label %bad

good:
  ret ptr %pointer

bad:
  ret ptr %found
}

; Returns how many offsets an access of `size` bytes may have.
define internal preserve_allcc i64 @check_offsets(ptr %bounds, i64 %size) noinline nounwind {
entry:
  %p.bytes = getelementptr i8, ptr %bounds, i64 8
  %bytes = load i64, ptr %p.bytes, align 8
  %holds = icmp ule i64 %size, %bytes
  %left = sub i64 %bytes, %size
  %count = add i64 %left, 1
  %found = select i1 %holds, i64 %count, i64 0
  ret i64 %found
}

; Writes the report, unless it has been written or `lanes` is zero.
define internal preserve_allcc void @check_none(i64 %lanes, ptr %bounds, i64 %offset, i64 %size, i64 %stores) noinline nounwind {
entry:
  %none = icmp eq i64 %lanes, 0
  br i1 %none, label %end, label %bad

bad:
  %other = call preserve_allcc ptr @check_failed(ptr %bounds, i64 %offset, i64 %size, i64 %stores)
  br label %end

end:
  ret void
}

; Writes the report, unless it has been written; returns what to access instead.
define internal preserve_allcc ptr @check_failed(ptr %bounds, i64 %offset, i64 %size, i64 %stores) noinline nounwind {
entry:
  %p.bytes = getelementptr i8, ptr %bounds, i64 8
  %p.report = getelementptr i8, ptr %bounds, i64 16
  %p.owner = getelementptr i8, ptr %bounds, i64 24
  %bytes = load i64, ptr %p.bytes, align 8
  %report = load ptr, ptr %p.report, align 8
  %owner = load ptr, ptr %p.owner, align 8
  %swap = cmpxchg ptr %report, i64 0, i64 1 acq_rel monotonic, align 8
  %is.first = extractvalue { i64, i1 } %swap, 1
  br i1 %is.first, label %write, label %end

write:
  %r.bounds = getelementptr i8, ptr %report, i64 8
  %r.owner = getelementptr i8, ptr %report, i64 16
  %r.offset = getelementptr i8, ptr %report, i64 24
  %r.size = getelementptr i8, ptr %report, i64 32
  %r.stores = getelementptr i8, ptr %report, i64 40
  %r.bytes = getelementptr i8, ptr %report, i64 48
  store ptr %bounds, ptr %r.bounds, align 8
  store ptr %owner, ptr %r.owner, align 8
  store i64 %offset, ptr %r.offset, align 8
  store i64 %size, ptr %r.size, align 8
  store i64 %stores, ptr %r.stores, align 8
  store i64 %bytes, ptr %r.bytes, align 8
  br label %end

end:
  %shift = shl i64 %stores, 12
  %place = add i64 %shift, 64
  %other = getelementptr i8, ptr %report, i64 %place
  ret ptr %other
}

declare i64 @llvm.cttz.i64(i64, i1)
declare i64 @llvm.ctlz.i64(i64, i1)
