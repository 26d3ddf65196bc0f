// A load from DRAM: asks for the rows, puts the beats that come to their places on chip, and writes
// the zeros around them in cycles without a beat. It lasts until its last beat has come and its last
// zero is written.
module vta_transfer #(
    parameter int unsigned INDEX_BITS = 8,  // of an element of the larger memory
    parameter int unsigned BANK_BITS = 1,   // of a beat in the larger element
    // Micro-ops in a beat.
    parameter int unsigned LANES = vta_rtl::BEAT_BYTES / vta_isa::UOP_BYTES,
    parameter int unsigned LANE_BITS = $clog2(LANES)
) (
    input logic clk,
    input logic reset,
    // The instruction, in the cycle in which it starts. REQUIRES: it is not empty.
    input logic start,
    // verilator lint_off UNUSEDSIGNAL
    input vta_isa::transfer_t load,  // not all fields of it
    // verilator lint_on UNUSEDSIGNAL
    input logic small_elements,    // several elements in a beat: micro-ops
    input logic [3:0] beat_shift,  // log2 of the beats of an element, if it is not small
    // Requests, and beats in the order of the requests.
    output logic request,
    output vta_rtl::request_t asked,
    input logic granted,
    input logic beat,
    output logic last,
    // In a cycle with a beat: the bank `bank` of an element; of small ones, `count` from the place
    // `first` of the beat.
    output logic [INDEX_BITS-1:0] element,
    output logic [BANK_BITS-1:0] bank,
    output logic [LANE_BITS-1:0] first,
    output logic [LANE_BITS:0] count,
    // A zero. Not in a cycle with a beat.
    output logic zero,
    output logic [INDEX_BITS-1:0] zero_element
);
  localparam int unsigned SIZE_BITS = vta_isa::SIZE_BITS;
  localparam int unsigned DRAM_BITS = vta_isa::DRAM_BITS;
  localparam int unsigned ROW_BITS = SIZE_BITS + BANK_BITS;  // beats of a row
  localparam int unsigned WIDTH_BITS = SIZE_BITS + 1;        // elements of a row with its zeros
  localparam int unsigned RUN_BITS = WIDTH_BITS + vta_isa::PAD_BITS + 1;  // zeros without a gap

  typedef logic [SIZE_BITS-1:0] size_t;
  typedef logic [INDEX_BITS-1:0] sram_t;
  typedef logic [RUN_BITS-1:0] run_t;

  // The instruction that runs.
  size_t x_size, x_stride;
  sram_t gap;  // zeros between two rows
  logic is_small;
  logic [3:0] shift;

  always_ff @(posedge clk) begin
    if (start) begin
      x_size <= load.x_size;
      x_stride <= load.x_stride;
      gap <= INDEX_BITS'(load.x_pad_0) + INDEX_BITS'(load.x_pad_1);
      is_small <= small_elements;
      shift <= beat_shift;
    end
  end

  // --- requests: each row, in parts that are not too long -------------------------------------------
  size_t ask_rows;
  logic [DRAM_BITS-1:0] ask_row;  // the first element of the row
  logic [ROW_BITS-1:0] ask_left;  // beats of the row that are not asked for
  logic ask_first;                // this part begins the row
  vta_rtl::beat_address_t ask_address, next_part;

  logic [DRAM_BITS-1:0] new_row;
  size_t new_size;
  logic new_small;
  logic [3:0] new_shift;
  // verilator lint_off UNUSEDSIGNAL
  logic [SIZE_BITS:0] new_places;  // small elements up to the end of the row's last beat, and more
  // verilator lint_on UNUSEDSIGNAL
  logic [ROW_BITS-1:0] new_left;
  assign new_row = start ? load.dram_base : ask_row + DRAM_BITS'(x_stride);
  assign new_size = start ? load.x_size : x_size;
  assign new_small = start ? small_elements : is_small;
  assign new_shift = start ? beat_shift : shift;
  assign new_places = (SIZE_BITS + 1)'(new_size) + (SIZE_BITS + 1)'(new_row[LANE_BITS-1:0]) +
                      (SIZE_BITS + 1)'(LANES - 1);
  assign new_left = new_small ? ROW_BITS'(new_places[SIZE_BITS:LANE_BITS])
                              : ROW_BITS'(new_size) << new_shift;

  assign ask_address = is_small ? vta_rtl::BEAT_ADDRESS_BITS'(ask_row[DRAM_BITS-1:LANE_BITS])
                                : vta_rtl::BEAT_ADDRESS_BITS'(ask_row) << shift;
  assign request = ask_rows != 0;
  logic ask_whole;  // the rest of the row is one request
  assign ask_whole = ask_left <= ROW_BITS'(vta_rtl::BURST_BEATS);
  assign asked.address = ask_first ? ask_address : next_part;
  assign asked.beats = ask_whole ? ask_left[$clog2(vta_rtl::BURST_BEATS):0]
                                 : ($clog2(vta_rtl::BURST_BEATS) + 1)'(vta_rtl::BURST_BEATS);

  always_ff @(posedge clk) begin
    if (reset) begin
      ask_rows <= '0;
    end else if (start || (granted && ask_whole)) begin
      ask_rows  <= start ? load.y_size : ask_rows - 1'b1;
      ask_row   <= new_row;
      ask_left  <= new_left;
      ask_first <= 1'b1;
    end else if (granted) begin
      ask_left  <= ask_left - ROW_BITS'(vta_rtl::BURST_BEATS);
      ask_first <= 1'b0;
      next_part <= asked.address + vta_rtl::BEAT_ADDRESS_BITS'(vta_rtl::BURST_BEATS);
    end
  end

  // --- beats ----------------------------------------------------------------------------------------
  size_t rows_left, elements_left;
  logic [LANE_BITS-1:0] row_lane;  // where the row begins in its beat
  logic [LANE_BITS:0] lanes_left;
  logic beat_ends_element, beat_ends_row, beat_is_last;
  sram_t width;  // of a row on chip
  assign width = INDEX_BITS'(load.x_pad_0) + INDEX_BITS'(load.x_size) + INDEX_BITS'(load.x_pad_1);

  assign lanes_left = (LANE_BITS + 1)'(LANES) - (LANE_BITS + 1)'(first);
  assign count = elements_left < SIZE_BITS'(lanes_left) ? (LANE_BITS + 1)'(elements_left)
                                                     : lanes_left;
  assign beat_ends_element = is_small || bank == BANK_BITS'((1 << shift) - 1);
  assign beat_ends_row = beat_ends_element &&
                         elements_left == (is_small ? SIZE_BITS'(count) : SIZE_BITS'(1));
  assign beat_is_last = beat_ends_row && rows_left == 1;

  always_ff @(posedge clk) begin
    if (reset) begin
      rows_left <= '0;
    end else if (start) begin
      rows_left <= load.y_size;
      elements_left <= load.x_size;
      element <= load.sram_base[INDEX_BITS-1:0] + INDEX_BITS'(load.y_pad_0) * width + INDEX_BITS'(load.x_pad_0);
      bank <= '0;
      first <= load.dram_base[LANE_BITS-1:0];
      row_lane <= load.dram_base[LANE_BITS-1:0];
    end else if (beat) begin
      bank <= beat_ends_element ? '0 : bank + 1'b1;
      first <= beat_ends_row ? row_lane + x_stride[LANE_BITS-1:0] : '0;
      if (beat_ends_element) begin
        elements_left <= elements_left - (is_small ? SIZE_BITS'(count) : SIZE_BITS'(1));
        element <= element + (is_small ? INDEX_BITS'(count) : INDEX_BITS'(1)) +
                   (beat_ends_row ? gap : '0);
      end
      if (beat_ends_row) begin
        rows_left <= rows_left - 1'b1;
        elements_left <= x_size;
        row_lane <= row_lane + x_stride[LANE_BITS-1:0];
      end
    end
  end

  // --- zeros: above the rows, between each two of them, and below, each a run without a gap ---------
  run_t run_above, run_below, run_left, below_left;
  size_t gaps_left;
  sram_t below_element;
  run_t rows_width;
  assign rows_width = RUN_BITS'(load.x_pad_0) + RUN_BITS'(load.x_size) + RUN_BITS'(load.x_pad_1);
  assign run_above = (RUN_BITS'(load.y_pad_0) + (load.y_size == 0 ? RUN_BITS'(load.y_pad_1) : '0)) *
                     rows_width + (load.y_size == 0 ? '0 : RUN_BITS'(load.x_pad_0));
  assign run_below = load.y_size == 0 ? '0
                                      : RUN_BITS'(load.y_pad_1) * rows_width + RUN_BITS'(load.x_pad_1);

  logic zeros_last, has_gap;  // the last zero is written in this cycle
  size_t first_gaps;
  assign has_gap = load.x_pad_0 != 0 || load.x_pad_1 != 0;
  assign first_gaps = has_gap && load.y_size > 1 ? load.y_size - SIZE_BITS'(1) : '0;
  assign zero = run_left != 0 && !beat;
  assign zeros_last = zero && run_left == 1 && gaps_left == 0 && below_left == 0;

  sram_t above_end;  // the element after the run above
  assign above_end = load.sram_base[INDEX_BITS-1:0] + INDEX_BITS'(run_above);

  always_ff @(posedge clk) begin
    if (reset) begin
      run_left <= '0;
    end else if (start) begin
      below_element <= load.sram_base[INDEX_BITS-1:0] + (INDEX_BITS'(load.y_pad_0) + INDEX_BITS'(load.y_size)) * width -
                       INDEX_BITS'(load.x_pad_1);
      gaps_left <= first_gaps;
      below_left <= run_below;
      zero_element <= load.sram_base[INDEX_BITS-1:0];
      run_left <= run_above;
      if (run_above == 0 && first_gaps != 0) begin
        zero_element <= above_end + INDEX_BITS'(load.x_size);
        run_left <= RUN_BITS'(load.x_pad_0) + RUN_BITS'(load.x_pad_1);
        gaps_left <= first_gaps - 1'b1;
      end else if (run_above == 0) begin
        zero_element <= load.sram_base[INDEX_BITS-1:0] + INDEX_BITS'(load.y_size) * width - INDEX_BITS'(load.x_pad_1);
        run_left <= run_below;
        below_left <= '0;
      end
    end else if (zero) begin
      zero_element <= zero_element + 1'b1;
      run_left <= run_left - 1'b1;
      if (run_left == 1 && gaps_left != 0) begin
        zero_element <= zero_element + 1'b1 + INDEX_BITS'(x_size);
        run_left <= RUN_BITS'(gap);
        gaps_left <= gaps_left - 1'b1;
      end else if (run_left == 1) begin
        zero_element <= below_element;
        run_left <= below_left;
        below_left <= '0;
      end
    end
  end

  assign last = (rows_left == 0 || (beat && beat_is_last)) && (run_left == 0 || zeros_last);
endmodule
