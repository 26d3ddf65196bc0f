// The loops of gemm and alu: the micro-ops of an instruction, one a cycle or one every second cycle,
// and what the loops add to their elements.
module vta_loops (
    input logic clk,
    input logic reset,
    input logic start,  // REQUIRES: there are iterations and micro-ops
    input vta_isa::gemm_t loops,
    input logic slow,  // two cycles for each micro-op
    output logic valid,
    output logic last,
    output logic [vta_isa::UOP_INDEX_BITS-1:0] uop,
    output logic [vta_isa::ACC_INDEX_BITS-1:0] dst,
    output logic [vta_isa::SRC_INDEX_BITS-1:0] src,
    output logic [vta_isa::WGT_INDEX_BITS-1:0] wgt
);
  // verilator lint_off UNUSEDSIGNAL
  vta_isa::gemm_t held;  // not all fields of it
  // verilator lint_on UNUSEDSIGNAL
  logic active, slow_held, second;
  logic [vta_isa::ITER_BITS-1:0] in_left, out_left;
  // Of the iteration of the outer loop.
  logic [vta_isa::ACC_INDEX_BITS-1:0] dst_out, next_dst;
  logic [vta_isa::SRC_INDEX_BITS-1:0] src_out, next_src;
  logic [vta_isa::WGT_INDEX_BITS-1:0] wgt_out, next_wgt;
  logic uop_last, in_last;

  assign valid = active && !second;
  assign uop_last = (vta_isa::UOP_INDEX_BITS + 1)'(uop) + 1'b1 == held.uop_end;
  assign in_last = in_left == 1;
  assign last = valid && uop_last && in_last && out_left == 1;
  assign next_dst = in_last ? dst_out + held.dst_factor_out : dst + held.dst_factor_in;
  assign next_src = in_last ? src_out + held.src_factor_out : src + held.src_factor_in;
  assign next_wgt = in_last ? wgt_out + held.wgt_factor_out : wgt + held.wgt_factor_in;

  always_ff @(posedge clk) begin
    if (reset) begin
      active <= 1'b0;
    end else if (start) begin
      active <= 1'b1;
      held <= loops;
      slow_held <= slow;
      second <= 1'b0;
      uop <= loops.uop_begin;
      in_left <= loops.iter_in;
      out_left <= loops.iter_out;
      {dst, dst_out, src, src_out, wgt, wgt_out} <= '0;
    end else if (active) begin
      second <= slow_held && !second;
      if (last) active <= 1'b0;
      if (valid) uop <= uop_last ? held.uop_begin : uop + 1'b1;
      if (valid && uop_last) begin
        dst <= next_dst;
        src <= next_src;
        wgt <= next_wgt;
        in_left <= in_last ? held.iter_in : in_left - 1'b1;
        if (in_last) begin
          out_left <= out_left - 1'b1;
          dst_out <= next_dst;
          src_out <= next_src;
          wgt_out <= next_wgt;
        end
      end
    end
  end
endmodule
