// The module compute: gemm, alu, loads of uop and acc, finish; and the memories uop, acc and out.
//
// gemm and alu are a pipeline that takes a micro-op a cycle:
//   0 read the micro-op   1 add the loops, read inp and wgt   2 multiply and sum   3 read acc
//   4 accumulate, write acc and out
// alu with both operands from acc takes one every second cycle: it reads src in 2 and dst in 3, which
// is one port, multiplies in 4, and writes in 5.
module vta_compute (
    input logic clk,
    input logic reset,
    input logic push,
    input logic [vta_rtl::INSTRUCTION_BITS-1:0] instruction,
    output logic full,
    output logic waiting,   // instructions wait
    output logic busy,      // an instruction runs
    output logic finished,  // a finish is done
    // Tokens of load and store.
    input logic prev_available,
    input logic prev_room,
    output logic take_prev,
    output logic give_prev,
    input logic next_available,
    input logic next_room,
    output logic take_next,
    output logic give_next,
    // DRAM.
    output logic request,
    output vta_rtl::request_t asked,
    input logic granted,
    input logic beat,
    input vta_rtl::beat_t data,
    // Operands.
    output logic operand_read,
    output logic [vta_isa::INP_INDEX_BITS-1:0] inp_index,
    output logic [vta_isa::WGT_INDEX_BITS-1:0] wgt_index,
    input logic [8*vta_isa::INP_BYTES-1:0] inp,
    input logic [8*vta_isa::WGT_BYTES-1:0] wgt,
    // Results.
    input logic out_read,
    input logic [vta_isa::ACC_INDEX_BITS-1:0] out_index,
    output logic [8*vta_isa::OUT_BYTES-1:0] out
);
  localparam int unsigned BLOCK = vta_isa::BLOCK;
  localparam int unsigned ACC_BITS = 8 * vta_isa::ACC_BYTES;
  localparam int unsigned ACC_BANKS = vta_isa::ACC_BYTES / vta_rtl::BEAT_BYTES;
  localparam int unsigned LANE_BITS = $clog2(vta_rtl::BEAT_BYTES / vta_isa::UOP_BYTES);
  localparam int unsigned INDEX_BITS = vta_isa::UOP_INDEX_BITS > vta_isa::ACC_INDEX_BITS
                                           ? vta_isa::UOP_INDEX_BITS : vta_isa::ACC_INDEX_BITS;

  // --- instructions ---------------------------------------------------------------------------------
  logic [vta_rtl::INSTRUCTION_BITS-1:0] head;
  vta_isa::transfer_t head_load;
  vta_isa::gemm_t head_loops;
  // verilator lint_off UNUSEDSIGNAL
  vta_isa::alu_t head_alu;  // not all fields of it
  // verilator lint_on UNUSEDSIGNAL
  assign head_load = head;
  assign head_loops = head;
  assign head_alu = head;

  logic valid, start, done, idle, last;
  vta_fifo #(
      .WIDTH(vta_rtl::INSTRUCTION_BITS),
      .DEPTH(vta_rtl::MODULE_QUEUE)
  ) queue (
      .clk,
      .reset,
      .push,
      .word(instruction),
      .full,
      .pop (start),
      .valid,
      .head
  );

  logic head_is_load, head_is_alu, head_is_loops, empty_load, empty_loops, only_decodes;
  assign head_is_load = head_load.opcode == vta_isa::OPCODE_LOAD;
  assign head_is_alu = head_load.opcode == vta_isa::OPCODE_ALU;
  assign head_is_loops = head_is_alu || head_load.opcode == vta_isa::OPCODE_GEMM;
  assign empty_load = head_load.x_size == 0 || (head_load.y_size == 0 && head_load.y_pad_0 == 0 &&
                                                head_load.y_pad_1 == 0);
  assign empty_loops = {1'b0, head_loops.uop_begin} >= head_loops.uop_end ||
                       head_loops.iter_out == 0 || head_loops.iter_in == 0;
  assign only_decodes = !(head_is_load && !empty_load) && !(head_is_loops && !empty_loops);

  vta_sequencer sequencer (
      .clk,
      .reset,
      .valid,
      .flags({
        head_load.push_next, head_load.push_prev, head_load.pop_next, head_load.pop_prev
      }),
      .only_decodes,
      .prev_available,
      .next_available,
      .prev_room,
      .next_room,
      .take_prev,
      .take_next,
      .give_prev,
      .give_next,
      .last,
      .start,
      .done,
      .idle
  );
  assign waiting = valid;
  assign busy = start || !idle;

  // The instruction that runs.
  logic is_finish, is_load, is_acc, is_alu, is_reset, overwrites;
  logic [2:0] operation;
  logic use_imm;
  logic signed [vta_isa::IMM_BITS-1:0] imm;
  logic head_is_finish;
  assign head_is_finish = head_load.opcode == vta_isa::OPCODE_FINISH;
  assign finished = done && (start ? head_is_finish : is_finish);
  always_ff @(posedge clk) begin
    if (start) begin
      is_finish <= head_is_finish;
      is_load <= head_is_load;
      is_acc <= head_load.memory == vta_isa::MEMORY_ACC;
      is_alu <= head_is_alu;
      is_reset <= head_loops.reset;
      overwrites <= head_loops.overwrite;
      operation <= head_alu.operation;
      use_imm <= head_alu.use_imm;
      imm <= head_alu.imm;
    end
  end

  // --- loads ----------------------------------------------------------------------------------------
  logic [INDEX_BITS-1:0] element, zero_element, load_index;
  logic [$clog2(ACC_BANKS)-1:0] bank;
  logic [LANE_BITS-1:0] first;
  logic [LANE_BITS:0] count;
  logic zero, load_last;
  vta_transfer #(
      .INDEX_BITS(INDEX_BITS),
      .BANK_BITS ($clog2(ACC_BANKS))
  ) transfer (
      .clk,
      .reset,
      .start(start && head_is_load && !empty_load),
      .load(head_load),
      .small_elements(head_load.memory == vta_isa::MEMORY_UOP),
      .beat_shift(4'($clog2(ACC_BANKS))),
      .request,
      .asked,
      .granted,
      .beat,
      .last(load_last),
      .element,
      .bank,
      .first,
      .count,
      .zero,
      .zero_element
  );
  vta_rtl::beat_t loaded;
  assign loaded = zero ? '0 : data;
  assign load_index = zero ? zero_element : element;

  // --- 0: the micro-op ------------------------------------------------------------------------------
  logic slow, issue, issue_last;
  logic [vta_isa::UOP_INDEX_BITS-1:0] uop_index;
  logic [vta_isa::ACC_INDEX_BITS-1:0] loop_dst;
  logic [vta_isa::SRC_INDEX_BITS-1:0] loop_src;
  logic [vta_isa::WGT_INDEX_BITS-1:0] loop_wgt;
  // verilator lint_off UNUSEDSIGNAL
  vta_isa::uop_t uop;  // not all bits of it are fields
  // verilator lint_on UNUSEDSIGNAL
  assign slow = is_alu && !use_imm;
  vta_loops loop_counters (
      .clk,
      .reset,
      .start(start && head_is_loops && !empty_loops),
      .loops(head_loops),
      .slow(head_is_alu && !head_alu.use_imm[0]),
      .valid(issue),
      .last(issue_last),
      .uop(uop_index),
      .dst(loop_dst),
      .src(loop_src),
      .wgt(loop_wgt)
  );
  vta_uop_memory uop_memory (
      .clk,
      .write((beat || zero) && !is_acc),
      .write_element(load_index[vta_isa::UOP_INDEX_BITS-1:0]),
      .first(zero ? '0 : first),
      .count(zero ? (LANE_BITS + 1)'(1) : count),
      .data(loaded),
      .read(issue),
      .read_element(uop_index),
      .uop
  );

  // --- 1: the operands ------------------------------------------------------------------------------
  logic valid_1, valid_2, valid_3, valid_4, valid_5;
  logic last_1, last_2, last_3, last_4, last_5;
  logic [vta_isa::ACC_INDEX_BITS-1:0] loop_dst_1, dst_1, dst_2, dst_3, dst_4, dst_5, src_2, src_3;
  logic [vta_isa::SRC_INDEX_BITS-1:0] loop_src_1, src_1;
  logic [vta_isa::WGT_INDEX_BITS-1:0] loop_wgt_1;
  assign dst_1 = uop.dst + loop_dst_1;
  assign src_1 = uop.src + loop_src_1;
  assign operand_read = valid_1 && !is_alu && !is_reset;
  assign inp_index = src_1[vta_isa::INP_INDEX_BITS-1:0];
  assign wgt_index = uop.wgt + loop_wgt_1;

  always_ff @(posedge clk) begin
    if (reset) begin
      {valid_1, valid_2, valid_3, valid_4, valid_5} <= '0;
      {last_1, last_2, last_3, last_4, last_5} <= '0;
    end else begin
      {valid_1, valid_2, valid_3, valid_4, valid_5} <= {issue, valid_1, valid_2, valid_3,
                                                         valid_4 && slow};
      {last_1, last_2, last_3, last_4, last_5} <= {issue_last, last_1, last_2, last_3, last_4};
    end
    loop_dst_1 <= loop_dst;
    loop_src_1 <= loop_src;
    loop_wgt_1 <= loop_wgt;
    {dst_2, dst_3, dst_4, dst_5} <= {dst_1, dst_2, dst_3, dst_4};
    src_2 <= src_1[vta_isa::ACC_INDEX_BITS-1:0];
    src_3 <= src_2;
  end
  assign last = is_load ? load_last : slow ? last_5 : last_4;

  // --- 2: products ----------------------------------------------------------------------------------
  logic [ACC_BITS-1:0] sums_3, sums_4;
  vta_gemm gemm (
      .clk,
      .valid(valid_2 && !is_alu && !is_reset),
      .inp,
      .wgt,
      .sums(sums_3)
  );

  // --- 3: acc ---------------------------------------------------------------------------------------
  logic acc_write;
  logic [ACC_BITS-1:0] acc, result, src_4;
  logic [vta_isa::ACC_INDEX_BITS-1:0] result_index;
  always_ff @(posedge clk) begin
    if (valid_3 && !is_alu) sums_4 <= sums_3;
    // What was read in 2 is older than what the micro-op before writes now.
    if (valid_3 && slow) src_4 <= acc_write && result_index == src_3 ? result : acc;
  end

  // --- 4 and 5: results -----------------------------------------------------------------------------
  logic [ACC_BITS-1:0] now, later, accumulated;
  vta_alu alu (
      .clk,
      .valid(valid_4 && is_alu),
      .later_valid(valid_5),
      .operation,
      .use_imm,
      .imm,
      .dst(acc),
      .src(src_4),
      .now,
      .later
  );
  always_comb begin
    accumulated = '0;
    if (valid_4 && !is_alu && !is_reset) begin
      for (int unsigned l = 0; l < BLOCK; l++)
        accumulated[32*l+:32] = (overwrites ? '0 : acc[32*l+:32]) + sums_4[32*l+:32];
    end
  end
  assign acc_write = slow ? valid_5 : valid_4;
  assign result = !is_alu ? accumulated : slow ? later : now;
  assign result_index = slow ? dst_5 : dst_4;

  // A load of acc and a loop never run at the same time.
  logic loads_acc;
  logic [ACC_BANKS-1:0] load_banks;
  assign loads_acc  = (beat || zero) && is_acc;
  assign load_banks = zero ? '1 : ACC_BANKS'(1) << bank;
  vta_memory #(
      .ELEMENTS(vta_isa::ACC_ELEMENTS),
      .BANKS(ACC_BANKS),
      .BANK_BITS(vta_rtl::BEAT_BITS),
      .FORWARD(1'b1)
  ) acc_memory (
      .clk,
      .write(loads_acc ? load_banks : {ACC_BANKS{acc_write}}),
      .write_index(loads_acc ? load_index[vta_isa::ACC_INDEX_BITS-1:0] : result_index),
      .write_data(loads_acc ? {ACC_BANKS{loaded}} : result),
      .read(valid_3 || (valid_2 && slow)),
      .read_index(valid_3 ? dst_3 : src_2),
      .read_data(acc)
  );

  logic [8*vta_isa::OUT_BYTES-1:0] low_bytes;
  for (genvar l = 0; l < BLOCK; l++) begin : g_low
    assign low_bytes[8*l+:8] = result[32*l+:8];
  end
  vta_memory #(
      .ELEMENTS (vta_isa::OUT_ELEMENTS),
      .BANK_BITS(8 * vta_isa::OUT_BYTES)
  ) out_memory (
      .clk,
      .write(acc_write),
      .write_index(result_index),
      .write_data(low_bytes),
      .read(out_read),
      .read_index(out_index),
      .read_data(out)
  );
endmodule
