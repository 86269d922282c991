#!/bin/sh
# Makes the scripted voices beside this file: espeak-ng speaks, sox narrows to the telephone band, lays a little line
# noise under it and writes raw 8 kHz mono mu-law. Needs espeak-ng >= 1.51 and sox >= 14.4.2. Run: sh make.sh
#
# With a folder as argument it also cuts the human speech out of an unpacked pocketsphinx-testdata package
# (apt-get download pocketsphinx-testdata; dpkg -x pocketsphinx-testdata_*.deb DIR; sh make.sh DIR), see README.md.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# line NAME VOICE PITCH TEXT, at $speed words a minute
line() {
    espeak-ng -v "$2" -p "$3" -s "$speed" -w "$work/spoken.wav" "$4"
    # 300-3400 Hz is the telephone band; -4 dB leaves head room for the noise; 0.15 s of line before and after.
    sox -R "$work/spoken.wav" -r 8000 -c 1 -b 16 "$work/band.wav" \
        silence 1 0.01 0.1% reverse silence 1 0.01 0.1% reverse \
        sinc 300-3400 gain -n -4 pad 0.15 0.15
    # Pink noise about 50 dB below full scale: the hiss of a quiet room through a handset.
    sox -R "$work/band.wav" -p synth pinknoise vol 0.006 | sox -R -m -v 1 "$work/band.wav" -v 1 - \
        -t ul -r 8000 -c 1 "$1.ulaw"
    printf '%-28s %6s ms  %s\n' "$1.ulaw" "$(($(wc -c <"$1.ulaw") / 8))" "$4"
}

# A person at the telephone speaks slower than espeak's default of 175.
speed=150
caller=en-gb+f3
line caller_request      "$caller" 52 "Hello, I'd like to book a table for two at nine tonight, please."
line caller_talk_over    "$caller" 55 "Oh, and could we sit by the window if there is one? That would be lovely, thank you."
line caller_thanks       "$caller" 50 "That's wonderful, thank you very much. Goodbye."
line caller_hello_again  "$caller" 50 "Hello, it's me again. We were cut off."

speed=165
agent=en-us+m3
line agent_greeting      "$agent" 42 "Good evening, this is the Blue Door restaurant. How can I help you?"
line agent_acknowledge   "$agent" 42 "One moment please, I am sending that to the restaurant's booking system now, and I will tell you as soon as I hear back."
line agent_window        "$agent" 42 "I will note the window seat wish."
line agent_confirmation  "$agent" 42 "Your table for two at nine is booked. The reference is B seven."
line agent_goodbye       "$agent" 42 "Thank you for calling. Goodbye."
line agent_welcome_back  "$agent" 42 "Welcome back. Sorry, we were cut off."
line agent_back_booked   "$agent" 42 "Welcome back. Your table for two at nine is booked. The reference is B seven."
line agent_trouble       "$agent" 42 "I am sorry, the booking system did not answer. A colleague will call you back."

if [ $# -ge 1 ]; then
    data="$1/usr/share/pocketsphinx/test/data"
    # excerpt NAME SOURCE: 16-bit PCM WAV, so that any reader takes it.
    excerpt() { sox -R "$2" -r 8000 -c 1 -b 16 "$1.wav" gain -n -4; }
    for n in 0880 0890 0930; do
        excerpt "human_reading_$n" "$data/librivox/sense_and_sensibility_01_austen_64kb-$n.wav"
    done
fi
