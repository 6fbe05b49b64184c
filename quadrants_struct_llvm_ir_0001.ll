; ModuleID = 'struct'
source_filename = "struct"
target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"

%S0_type_stubs = type { %S0_ch, %S0_ch, i8, %S0_ch }
%S0_ch = type {}

declare %S0_type_stubs @S0_type_stubs_func()

define void @S0_refine_coordinates(ptr %0, ptr %1, i32 %2) {
entry:
  %3 = call i32 @PhysicalCoordinates_get_val(ptr %0, i32 0)
  %4 = mul i32 %3, 1
  %5 = add i32 %4, 0
  call void @PhysicalCoordinates_set_val(ptr %1, i32 0, i32 %5)
  %6 = call i32 @PhysicalCoordinates_get_val(ptr %0, i32 1)
  %7 = mul i32 %6, 1
  %8 = add i32 %7, 0
  call void @PhysicalCoordinates_set_val(ptr %1, i32 1, i32 %8)
  %9 = call i32 @PhysicalCoordinates_get_val(ptr %0, i32 2)
  %10 = mul i32 %9, 1
  %11 = add i32 %10, 0
  call void @PhysicalCoordinates_set_val(ptr %1, i32 2, i32 %11)
  %12 = call i32 @PhysicalCoordinates_get_val(ptr %0, i32 3)
  %13 = mul i32 %12, 1
  %14 = add i32 %13, 0
  call void @PhysicalCoordinates_set_val(ptr %1, i32 3, i32 %14)
  %15 = call i32 @PhysicalCoordinates_get_val(ptr %0, i32 4)
  %16 = mul i32 %15, 1
  %17 = add i32 %16, 0
  call void @PhysicalCoordinates_set_val(ptr %1, i32 4, i32 %17)
  %18 = call i32 @PhysicalCoordinates_get_val(ptr %0, i32 5)
  %19 = mul i32 %18, 1
  %20 = add i32 %19, 0
  call void @PhysicalCoordinates_set_val(ptr %1, i32 5, i32 %20)
  %21 = call i32 @PhysicalCoordinates_get_val(ptr %0, i32 6)
  %22 = mul i32 %21, 1
  %23 = add i32 %22, 0
  call void @PhysicalCoordinates_set_val(ptr %1, i32 6, i32 %23)
  %24 = call i32 @PhysicalCoordinates_get_val(ptr %0, i32 7)
  %25 = mul i32 %24, 1
  %26 = add i32 %25, 0
  call void @PhysicalCoordinates_set_val(ptr %1, i32 7, i32 %26)
  %27 = call i32 @PhysicalCoordinates_get_val(ptr %0, i32 8)
  %28 = mul i32 %27, 1
  %29 = add i32 %28, 0
  call void @PhysicalCoordinates_set_val(ptr %1, i32 8, i32 %29)
  %30 = call i32 @PhysicalCoordinates_get_val(ptr %0, i32 9)
  %31 = mul i32 %30, 1
  %32 = add i32 %31, 0
  call void @PhysicalCoordinates_set_val(ptr %1, i32 9, i32 %32)
  %33 = call i32 @PhysicalCoordinates_get_val(ptr %0, i32 10)
  %34 = mul i32 %33, 1
  %35 = add i32 %34, 0
  call void @PhysicalCoordinates_set_val(ptr %1, i32 10, i32 %35)
  %36 = call i32 @PhysicalCoordinates_get_val(ptr %0, i32 11)
  %37 = mul i32 %36, 1
  %38 = add i32 %37, 0
  call void @PhysicalCoordinates_set_val(ptr %1, i32 11, i32 %38)
  ret void
}

; Function Attrs: alwaysinline mustprogress nounwind uwtable
declare i32 @PhysicalCoordinates_get_val(ptr noundef, i32 noundef) #0

; Function Attrs: alwaysinline mustprogress nounwind uwtable
declare void @PhysicalCoordinates_set_val(ptr noundef, i32 noundef, i32 noundef) #0

attributes #0 = { alwaysinline mustprogress nounwind uwtable "frame-pointer"="all" "min-legal-vector-width"="0" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="x86-64" "target-features"="+cmov,+cx8,+fxsr,+mmx,+sse,+sse2,+x87" "tune-cpu"="generic" }
