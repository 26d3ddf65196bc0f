// The module store: reads results from out and writes them to DRAM, a beat a cycle. An instruction
// is done when DRAM says that its last beat is there.
module vta_store (
    input logic clk,
    input logic reset,           // of a stream
    input logic hardware_reset,
    input logic push,
    input logic [127:0] instruction,
    output logic full,
    output logic idle,
    output logic busy,
    // Tokens of compute.
    input logic prev_available,
    input logic prev_room,
    output logic take_prev,
    output logic give_prev,
    // The memory out.
    output logic read,
    output logic [vta_isa::ACC_INDEX_BITS-1:0] index,
    input logic [8*vta_isa::OUT_BYTES-1:0] out,
    // DRAM.
    output logic write,
    output vta_rtl::beat_address_t address,
    output vta_rtl::beat_t data,
    output logic write_last,  // the last beat of an instruction, which is answered
    input logic ready,
    input logic response,
    output logic quiet  // no response is on its way
);
  localparam int unsigned INDEX_BITS = vta_isa::ACC_INDEX_BITS;
  localparam int unsigned BANKS = vta_isa::OUT_BYTES / vta_rtl::BEAT_BYTES;
  localparam int unsigned SHIFT = $clog2(BANKS);
  localparam int unsigned COLUMN_BITS = vta_isa::SIZE_BITS + SHIFT;

  // verilator lint_off UNUSEDSIGNAL
  vta_isa::transfer_t head;  // not all fields of it
  // verilator lint_on UNUSEDSIGNAL
  logic valid, start, done_unused, stage_idle, last, empty;
  vta_fifo #(
      .WIDTH(128),
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
  assign empty = head.x_size == 0 || head.y_size == 0;
  assign idle = stage_idle && !valid;
  assign busy = start || !stage_idle;

  logic take_unused, give_unused;  // there is no module after
  vta_sequencer sequencer (
      .clk,
      .reset,
      .valid,
      .flags({head.push_next, head.push_prev, head.pop_next, head.pop_prev}),
      .only_decodes(empty),
      .prev_available,
      .next_available(1'b0),
      .prev_room,
      .next_room(1'b0),
      .take_prev,
      .take_next(take_unused),
      .give_prev,
      .give_next(give_unused),
      .last,
      .start,
      .done(done_unused),
      .idle(stage_idle)
  );

  // --- beats ----------------------------------------------------------------------------------------
  logic begins;
  assign begins = start && !empty;
  logic [vta_isa::SIZE_BITS-1:0] rows_left, x_stride;
  logic [COLUMN_BITS-1:0] row_beats, beats_left;
  logic [vta_isa::DRAM_BITS-1:0] row, next_row;
  logic [INDEX_BITS-1:0] element;
  logic [COLUMN_BITS-1:0] beat;  // of the row

  logic beat_ends_element, beat_ends_row;
  if (BANKS == 1) begin : g_one_bank
    assign beat_ends_element = 1'b1;
    assign data = out;
  end else begin : g_banks
    assign beat_ends_element = &beat[SHIFT-1:0];
    assign data = out[{beat[SHIFT-1:0], 6'b0}+:vta_rtl::BEAT_BITS];
  end
  assign beat_ends_row = beats_left == 1;
  assign write = rows_left != 0;
  assign write_last = rows_left == 1 && beat_ends_row;
  assign address = (vta_rtl::BEAT_ADDRESS_BITS'(row) << SHIFT) + vta_rtl::BEAT_ADDRESS_BITS'(beat);
  assign next_row = row + vta_isa::DRAM_BITS'(x_stride);

  // The element of the next cycle is read now.
  assign read = begins || (write && ready && beat_ends_element);
  assign index = begins ? head.sram_base[INDEX_BITS-1:0] : element + 1'b1;

  always_ff @(posedge clk) begin
    if (reset) begin
      rows_left <= '0;
    end else if (begins) begin
      rows_left <= head.y_size;
      x_stride <= head.x_stride;
      row_beats <= COLUMN_BITS'(head.x_size) << SHIFT;
      beats_left <= COLUMN_BITS'(head.x_size) << SHIFT;
      row <= head.dram_base;
      element <= head.sram_base[INDEX_BITS-1:0];
      beat <= '0;
    end else if (write && ready) begin
      beat <= beat_ends_row ? '0 : beat + 1'b1;
      beats_left <= beat_ends_row ? row_beats : beats_left - 1'b1;
      if (beat_ends_row) begin
        rows_left <= rows_left - 1'b1;
        row <= next_row;
      end
      if (beat_ends_element) element <= index;
    end
  end

  // --- responses ------------------------------------------------------------------------------------
  logic waits;  // for the response of the last write, also after a stop
  always_ff @(posedge clk) begin
    if (hardware_reset) waits <= 1'b0;
    else if (write && ready && write_last) waits <= 1'b1;
    else if (response) waits <= 1'b0;
  end
  assign quiet = !waits;
  assign last = waits && response;
endmodule
