try:
    from cli.__main__ import main
except KeyboardInterrupt:
    raise SystemExit(130) from None

main()
